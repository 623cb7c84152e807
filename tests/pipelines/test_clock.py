"""`kedro run --pipelines=clock` through a real Kedro session."""

import pandas as pd
from tests.finished import artifacts_of, only_run, report

OF_D = "topology.fanouts=[10],topology.trust.ratios=[],training.local_aggregation=null"
TABLES = ("times", "rounds")


def test_a_run_leaves_ds_tables_and_figures_and_trains_nothing(project, kedro_run):
    result = kedro_run("--pipelines", "clock", "--params", f"{OF_D},training.rounds=12", code=0)
    said = " ".join(result.output.split())
    assert "12 rounds planned, times of resnet56: on average" in said
    reporting = project / "data/08_reporting/single"
    tables = {f"clock_{name}.csv" for name in TABLES}
    figures = {"clock_rounds.png"}
    assert {file.name for file in reporting.iterdir()} == tables | figures
    for name in tables:
        assert pd.read_csv(reporting / name)["model"].str.startswith("resnet").all(), name

    rounds = report(project, "clock_rounds.csv")
    assert rounds["round"].tolist() == list(range(1, 13))
    by_tier = rounds[[f"tier_{tier}" for tier in range(1, 8)]]
    assert (by_tier.sum(axis=1) == 10).all()
    assert by_tier.iloc[0].tolist() == [10, 0, 0, 0, 0, 0, 0]

    run = only_run()
    assert tables | figures <= artifacts_of(run)
    assert run.data.params["clock.rate_unit"] == "mebibyte"
    assert "diagnostic" not in run.data.tags  # no record was looked at
    assert not (project / "data/06_models/single/model.pt").exists()
    assert not (project / "data/05_model_input/single").exists()


def test_keys_reach_the_plan(project, kedro_run):
    params = (
        f"{OF_D},topology.fanouts=[6],clock.model=resnet20,clock.profiles=4/100|0.1/10,"
        "training.rounds=3,clock.noise=0,clock.switch_every=null,tiering.whole_model=true,"
        "tiering.schedule=static,tiering.static_tier=8,clock.rate_unit=megabit"
    )
    kedro_run("--pipelines", "clock", "--params", params, "--to-outputs", "clock_rounds", code=0)
    rounds = report(project, "clock_rounds.csv")
    assert rounds["model"].tolist() == ["resnet20"] * 3
    assert rounds["tier_8"].tolist() == [6] * 3
    assert rounds["dtfl_s"].tolist() == rounds["fedavg_s"].tolist()
