"""A metric of a user's own through whole runs, from their file to tables of several runs."""

import sys

import pytest
from tests.finished import REPOSITORY, SMALL, all_runs, output, report
from tests.pages import write_files

from m2fdp.claims.declared import Layout, TrendClaim, check_claims
from m2fdp.claims.measuring import measure_runs
from m2fdp.core import metrics
from m2fdp.reporting.panel_figures import draw
from m2fdp.reporting.panels import check_layout
from m2fdp.reporting.tables import comparison_table, to_markdown
from m2fdp.studies.tracked_runs import load_history, load_metrics, load_runs

OWN = f"{SMALL},training.metrics=quality:AUC|quality:BALANCED"


@pytest.fixture(autouse=True)
def own_file(project):
    write_files(REPOSITORY / "docs" / "metrics.md", project)
    yield
    metrics.OWN.clear()
    sys.modules.pop("quality", None)


def test_a_metric_of_ones_own_is_wherever_the_accuracy_is(project, kedro_run):
    finished = kedro_run(f"--params={OWN}", code=0)
    (run,) = all_runs()
    rounds, summary = output(project, "round_metrics.csv"), report(project, "run_summary.json")
    last = rounds["auc"].iloc[-1]
    assert rounds["auc"].between(0, 1).all() and rounds["auc"].nunique() == 3
    assert last == summary["auc"] == run.data.metrics["auc"]
    assert f"AUC                {last:.4f}" in finished.output
    card = (project / "data/08_reporting/single/privacy_card.md").read_text()
    assert f"| AUC | {last:.4f} |" in card
    assert f"| AUC | {last:.4f} |" in run.data.tags["mlflow.note.content"]
    rests_on = report(project, "privacy_summary.json")["own_code"]
    assert [part["name"] for part in rests_on] == ["quality:AUC", "quality:BALANCED"]

    ids = [run.info.run_id]
    metrics.OWN.clear()  # whoever reads the runs later knows of them by what they have logged
    runs = load_runs(ids)
    history = load_history(runs)
    measured = measure_runs(runs, history, known=load_metrics(ids))
    assert history["auc"].tolist() == rounds["auc"].tolist()
    assert measured["auc"].tolist() == [last]
    table = to_markdown(comparison_table(measured[[*runs, *metrics.OWN]]))
    assert "| AUC ± std | balanced accuracy ± std |" in table
    assert f"| {last:.3f} (n = 1) |" in table
    over_rounds = {"title": "AUC", "x": "round", "y": "auc", "lines": "algorithm"}
    layout = Layout.model_validate({"panels": [over_rounds]})
    check_layout(layout, [])
    assert draw(layout, measured, history, {}).axes[0].get_ylabel() == "AUC"
    words = {"claim": "it rises", "source": "ours", "paper": "-", "measure": "auc", "of": {}}
    check_claims([TrendClaim(**words, trend="x", direction="rises")], ["x"])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("raising", "1 / 0", "fails on 359 held-out records: ZeroDivisionError: division by zero"),
        ("long", "scores", "makes an array of shape (359, 10) of 359 held-out records; valid: one"),
    ],
)
def test_a_bad_one_is_one_line_before_a_run_is_begun(project, kedro_run, name, text, line):
    source = (
        f"from m2fdp.extend import Metric\nBAD = Metric('bad', lambda labels, scores: {text})\n"
    )
    (project / f"{name}_metric.py").write_text(source)
    refused = kedro_run(f"--params={SMALL},training.metrics={name}_metric:BAD", code=2)
    said = " ".join(refused.output.split())
    assert f"training.metrics = '{name}_metric:BAD': {line}" in said and "Traceback" not in said
    assert not all_runs()
    assert not [*(project / "data").rglob("*.csv"), *(project / "data").rglob("*.pt")]
