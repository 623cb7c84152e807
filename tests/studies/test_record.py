"""What a study's runs say is the same from MLflow and from the files that are kept of them."""

import json
import shutil
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from tests.finished import REPOSITORY
from tests.studies.logged_runs import log_run
from tools.records import RecordFiles

from m2fdp.core.errors import InputError
from m2fdp.studies.report import findings, summarise, tables
from m2fdp.studies.search import search_table
from m2fdp.studies.study import Study
from m2fdp.studies.tracked_runs import Record, tracked_record

pytestmark = pytest.mark.usefixtures("store")
CLAIM = {"claim": "a is calm", "source": "J Sec. I", "paper": "–", "measure": "volatility"}
SHOWN = {
    "title": "over rounds",
    "x": "round",
    "where": {"version": "1", "arm": "b"},
    "lines": "privacy.epsilon",
}
STUDY = {
    "title": "Tiny",
    "arms": {"a": {"algorithm": "m2fdp"}, "b": {"algorithm": "hfl"}},
    "grid": {"seed": [0, 1], "privacy.epsilon": [1.0, 2.5], "topology.fanouts": [[3, 2]]},
    "versions": {"1": {}, "none": {}},
    "table": ["seconds_per_round"],
    "claims": [CLAIM | {"of": {"arm": "a", "privacy.epsilon": 1.0}, "at_most": 0.5}],
    "figure": {"panels": [SHOWN]},
}


def tracked(study: Study) -> Record:
    """Of all runs of the study but one, with numbers that no short decimal is."""
    names, schedules = {}, {}
    for number, (version, arm, seed, epsilon) in enumerate(
        (v, a, s, e) for v in study.versions for a in study.arms for s in (0, 1) for e in (1.0, 2.5)
    ):
        if number == 3:
            continue
        run_id = log_run(
            study.arms[arm].parameters["algorithm"], seed, (0.1, 1 / 3, 0.5 - number / 300, 0.6),
            arm=arm, version=version,
            **{"privacy.epsilon": epsilon, "topology.fanouts": [3, 2]},
        )  # fmt: skip
        client = mlflow.MlflowClient()
        client.set_tag(run_id, "git_commit", "c" * 40)
        client.set_tag(run_id, "git_dirty", "true" if number else "false")
        client.set_tag(run_id, "split_sha256", f"{number:064d}")
        names[run_id] = f"{version}-{arm}-{number}"
        start = client.get_run(run_id).info.start_time
        client.set_terminated(run_id, end_time=start + 90_000)
    schedules = {"1-a-0": {"training.rounds": 7}}
    return tracked_record(study, names, schedules, search=search_table([], {}, {}))


@pytest.mark.parametrize("curves", [["accuracy"], ["accuracy", "loss"], ["loss"], []])
def test_the_files_of_a_record_say_what_its_runs_say(tmp_path: Path, curves: list[str]):
    dots = SHOWN | {"x": "privacy.epsilon", "lines": "arm"}
    panels = [SHOWN | {"y": curve} for curve in curves] or [dots]
    study = Study.model_validate(STUDY | {"figure": {"panels": panels}})
    record = tracked(study)
    files = RecordFiles(tmp_path / "runs", "tiny")
    written = [path.name for path in files.write(record)]
    assert written == (["tiny.csv", "tiny-rounds.csv"] if curves else ["tiny.csv"])
    assert ("loss" in record.rounds) == ("loss" in curves)
    again = files.read()
    for frame in (record, again):  # the search was none: no table of it is kept
        assert not len(frame.search) and not len(frame.procedures)
    assert again.measured.index.tolist() == record.measured.index.tolist()
    assert again.measured["accuracy"].tolist() == record.measured["accuracy"].tolist()
    found, read = findings(study, record), findings(study, again)
    texts = ["\n".join(tables(each, "##", pairs=True)) for each in (found, read)]
    assert texts[0] == texts[1] and "seconds of a round" in texts[0]
    for number, each in enumerate((found, read)):
        each.figure.savefig(tmp_path / f"{number}.png")
    assert (tmp_path / "0.png").read_bytes() == (tmp_path / "1.png").read_bytes()
    assert read.run_time == "their run time, added up over the workers, is 22 minutes"
    first = again.runs.loc["1-a-0"]
    assert json.loads(first["schedule"]) == {"training.rounds": 7}
    assert first["split"] == "0" * 64 and first["commit"] == "c" * 40
    assert again.runs["commit"].str.endswith("+changes").sum() == 14


def test_a_digest_tells_any_change_and_no_other_of_the_measures_that_a_study_asks_for(tmp_path):
    files = RecordFiles(tmp_path, "tiny")
    record = tracked(Study.model_validate(STUDY))
    assert {"volatility", "seconds_per_round", "energy_j"} < set(record.runs)
    assert "local_steps" not in record.runs
    files.write(record)
    before = files.digest()
    files.write(files.read())
    assert files.digest() == before
    rounds = files.path("rounds")
    rounds.write_text(rounds.read_text().replace("0.6", "0.7", 1))
    assert files.digest() != before


def test_what_is_no_record_is_refused(tmp_path: Path):
    files = RecordFiles(tmp_path, "tiny")
    assert not files.exists
    for text, line in {
        "run,algorithm\na,hfl\n": "seed.*publish anew",
        'run\n"a': "no table",
    }.items():
        files.path("").write_text(text)
        with pytest.raises(InputError, match=line):
            files.read()


def test_a_record_of_019_has_its_procedures_guarantee_from_its_runs(tmp_path: Path):
    for path in (REPOSITORY / "docs/results/runs").glob("fig8*.csv"):
        shutil.copy(path, tmp_path)
    runs = pd.read_csv(tmp_path / "fig8.csv")
    one = runs.index[(runs["version"] == "verified") & (runs["arm"] == "C.1")][0]
    runs.loc[one, "privacy"] = "conditional"
    runs.to_csv(tmp_path / "fig8.csv", index=False)
    table = RecordFiles(tmp_path, "fig8").read().procedures
    known = table.set_index(["version", "arm"])["guarantee"].to_dict()
    assert known.pop(("verified", "C.1")) == "conditional"
    assert len(known) == 3 and set(known.values()) == {"verified"}


def test_a_report_that_the_disk_refuses_leaves_the_former_one(tmp_path, small_files):
    path = tmp_path / "report.md"
    path.write_text("the former")
    with small_files(), pytest.raises(OSError) as refused:
        summarise(tmp_path, {})
    assert refused.value.filename == str(path)
    assert path.read_text() == "the former"
