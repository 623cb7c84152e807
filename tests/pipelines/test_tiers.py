"""`kedro run` in tiers: what is logged, and runs that are cut off and go on."""

import json

import pytest
from tests.finished import output, results, run_of

from m2fdp.tiers.config import PlateauConfig
from m2fdp.tiers.process import TierProcess
from m2fdp.tiers.transfer import TransferProcess

SMALL = (
    "topology.fanouts=2|3,partition.scheme=iid,partition.samples_per_device=20,"
    "training.rounds=4,training.batch_size=10,training.learning_rate=0.01,"
    "training.plateau.factor=0.5,training.checkpoint_every=1,"
    "model.name=resnet,model.width=2,threads=1"
)


@pytest.fixture(autouse=True)
def _a_plateau_after_one_round(monkeypatch):
    monkeypatch.setattr(PlateauConfig, "patience", 1)


@pytest.mark.parametrize(
    ("algorithm", "last"),
    [
        ("dtfl", 3),
        pytest.param("fedyogi", 2, marks=pytest.mark.full),
        pytest.param("fedgkt", 2, marks=pytest.mark.full),
        pytest.param("dtfl", 2, marks=pytest.mark.full),
    ],
)
def test_a_run_logs_its_tiers_and_goes_on_to_the_same_bytes(
    project, kedro_run, cut, algorithm, last
):
    params = f"algorithm={algorithm},{SMALL}"
    result = kedro_run("--params", f"{params},cell=whole", code=0)
    whole = results(project, "whole", run_of("whole"))

    process = TransferProcess if algorithm == "fedgkt" else TierProcess
    cut(last + 1, process=process)
    assert isinstance(kedro_run("--params", f"{params},cell=cut").exception, OSError)
    cut(None, process=process)
    result = kedro_run("--params", f"{params},cell=cut,resume=true")
    assert f"Training goes on after round {last}." in result.output
    assert results(project, "cut", run_of("cut")) == whole

    table = output(project, "round_metrics.csv", "whole")
    for name in ("accuracy", "delay_s", "round_s", "waiting_s"):
        logged = whole[f"tiers/{name}" if name.endswith("g_s") or name == "round_s" else name]
        assert [value for _, value in logged] == pytest.approx(table[name].tolist())
    assert table["delay_s"].tolist() == pytest.approx(table["round_s"].cumsum().tolist())
    assert whole["tiers/eta"][0] == (1, 0.01)
    if algorithm == "dtfl":
        counts = sum(table[f"tier_{tier}"] for tier in range(1, 8))
        assert (counts == 6).all()
        assert whole["tiers/tier_1"][0] == (1, 6.0)
    summary = json.loads(whole["run_summary.json"])
    assert summary["privacy"] == "none" and summary["rounds"] == 4
