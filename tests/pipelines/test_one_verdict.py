"""What a cell's pages say of a run comes from one verdict, which later commands only lower."""

from dataclasses import replace

import pytest
from tests.builders import experiment_of
from tests.finished import SMALL, all_runs, report

from m2fdp.checkpoints.verdict import LOST, OTHER_RECORDS, VERDICT, kept
from m2fdp.pipelines.data import assemble

CELL = "data/06_models/single"


def said(project):
    """What the summary, the card and the run's page say."""
    card = (project / "data/08_reporting/single/privacy_card.md").read_text()
    assert ("(conditional)" in card) != ("(verified)" in card)
    told = {report(project, name)[key] for name, key in _KEYS}
    return told | {"conditional" if "(conditional)" in card else "verified"}


_KEYS = (("privacy_summary.json", "guarantee"), ("run_summary.json", "privacy"))


def test_a_model_whose_verdict_is_lost_is_never_verified_until_it_is_trained_anew(
    project, kedro_run, finished_run
):
    finished_run("--params", SMALL).copy_data(project)
    assert said(project) == {"verified"}
    (project / CELL / VERDICT).unlink()
    kedro_run("--pipelines=evaluation", "--params", SMALL, code=0)
    assert said(project) == {"conditional"}
    assert report(project, "privacy_summary.json")["assumptions"][0] == LOST

    output = kedro_run("--pipelines=privacy", "--params", SMALL, code=0).output
    assert LOST in " ".join(output.split())
    assert {run.data.tags["privacy"] for run in all_runs()} == {"conditional"}
    assert "Replacing dataset" not in output
    assert said(project) == {"conditional"}

    for pipeline in ("training", "evaluation"):
        kedro_run(f"--pipelines={pipeline}", "--params", SMALL, code=0)
    assert said(project) == {"verified"}
    assert kept(project / CELL).guarantee == "verified"


def test_what_a_later_command_finds_stays(project, kedro_run, finished_run, monkeypatch):
    finished_run("--params", SMALL).copy_data(project)
    with monkeypatch.context() as stricter:
        stricter.setattr(
            "m2fdp.core.experiment.assembly.conditions_of", lambda config: ["it rains"]
        )
        output = kedro_run("--pipelines=privacy", "--params", SMALL, code=0).output
        assert "The cell's model is conditional from now on" in " ".join(output.split())
    assert not (project / "data/08_reporting/single/privacy_card.md").exists()
    kedro_run("--pipelines=evaluation", "--params", SMALL, code=0)
    assert said(project) == {"conditional"}
    assert kept(project / CELL).conditions == ("it rains",)
    audited = f"{SMALL},audit.repetitions=50"
    kedro_run("--pipelines=privacy", "--params", audited, code=0)
    assert said(project) == {"conditional"}


@pytest.mark.parametrize("same", [True, False])
def test_a_verdict_of_other_records_vouches_for_none(finished_run, same):
    finished = finished_run("--params", SMALL)
    verdict = kept(finished.project / CELL)
    experiment = experiment_of()
    known = replace(verdict, records=experiment.trained_on if same else "0" * 64)
    made = assemble(
        experiment.config, experiment.plan, experiment.dataset, experiment.manifest, known
    )
    assert made.known == (() if same else (OTHER_RECORDS,))
    assert made.summary()["guarantee"] == ("verified" if same else "conditional")
