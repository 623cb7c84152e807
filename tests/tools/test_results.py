"""Published numbers: records, pages and figures agree, and whatever does not is told."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from mlflow.entities import Metric, RunData, RunTag
from tests.finished import REPOSITORY
from tests.studies.parameters import BASE
from tools.publishing import check, digest_of, publish, with_versions
from tools.records import RecordFiles
from tools.rerun import compared

from m2fdp.cli import results, study
from m2fdp.studies.grid import Setting, expand
from m2fdp.studies.study import Study, load_study
from m2fdp.studies.tracked_runs import CHANGED

INDEX = "# Results\n\n<!-- figures -->\n<!-- end -->\n\n<!-- claims: J -->\n<!-- end -->\n"
ROWS = """rows:
- {figure: Digits, study: quickstart, paper: as good, why: it is ours}
- {figure: Lost, study: fig99, paper: better, why: nobody has run it, minutes: 7}
"""
OURS = "# Ours\n\n## Digits\n\nA text.\n\n<!-- study: quickstart -->\n<!-- end -->\n"


def test_what_is_published_agrees():
    assert check(REPOSITORY) == []


def test_the_index_can_be_read():
    assert len((REPOSITORY / "docs" / "results.md").read_text().splitlines()) <= 80


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project with the record of one study, and a table of figures."""
    docs, conf = tmp_path / "docs", tmp_path / "conf" / "base" / "studies"
    for folder in (docs / "results" / "runs", docs / "images", conf):
        folder.mkdir(parents=True)
    shutil.copy(REPOSITORY / "conf" / "base" / "studies" / "quickstart.yml", conf)
    for path in (REPOSITORY / "docs" / "results" / "runs").glob("quickstart*"):
        shutil.copy(path, docs / "results" / "runs")
    shutil.copy(REPOSITORY / "docs" / "images" / "quickstart.png", docs / "images")
    (docs / "results.md").write_text(INDEX)
    (docs / "results" / "ours.md").write_text(OURS)
    (docs / "results" / "figures.yml").write_text(ROWS)
    publish(tmp_path, None)
    assert check(tmp_path) == []
    return tmp_path


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")


def test_a_number_that_somebody_edits_is_told_with_its_line(published: Path):
    page = published / "docs" / "results" / "ours.md"
    assert "A text." in page.read_text() and "| 0.828 ± 0.022 |" in page.read_text()
    assert "All are by commit" in page.read_text()
    changed(page, "0.828", "0.838")
    first, second = check(published)
    number = page.read_text()[: page.read_text().index("0.838")].count("\n") + 1
    assert first.startswith(f"{page}:{number}: only the page has ") and "0.838" in first
    assert second.startswith(f"{page}:{number}: only the records give ") and "0.828" in second
    publish(published, None)
    assert check(published) == []


def test_a_record_that_changes_leaves_page_and_figure_behind(published: Path):
    files = RecordFiles(published / "docs" / "results" / "runs", "quickstart")
    record = files.read()
    record.runs.iloc[:4, record.runs.columns.get_loc("commit")] = "d" * 40 + CHANGED
    files.write(record)
    told = "\n".join(check(published))
    assert "ours.md:23: only the page has" in told
    figure = published / "docs" / "images" / "quickstart.png"
    assert f"{figure}: was not drawn from the record of quickstart" in told
    before = digest_of(figure)
    publish(published, None)
    assert check(published) == [] and digest_of(figure) not in ("", before)


def test_studies_and_records_that_nobody_shows_are_told(published: Path):
    conf = published / "conf" / "base" / "studies"
    shutil.copy(conf / "quickstart.yml", conf / "other.yml")
    runs = published / "docs" / "results" / "runs"
    shutil.copy(runs / "quickstart-rounds.csv", runs / "lost-rounds.csv")
    told = check(published)
    words = ("other.yml: no page", "lost-rounds.csv: no page has a block of lost")
    assert [word in line for word, line in zip(words, told, strict=True)] == [True] * 2


def test_the_table_of_figures_has_a_row_each(published: Path):
    lines = (published / "docs" / "results.md").read_text().splitlines()
    digits, lost = (
        next(line for line in lines if f"{name}" in line) for name in ("[Digits]", "Lost")
    )
    assert digits.startswith(
        "| [Digits](results/ours.md#digits) | as good | – | – | **not tested** |"
    )
    assert "| `kedro study quickstart` | 2 | [picture](images/quickstart.png) |" in digits
    assert lost.endswith("| **not tested** | nobody has run it | `kedro study fig99` | ≈ 7 | – |")


def test_versions_that_the_store_lacks_stay_as_the_record_has_them():
    files = RecordFiles(REPOSITORY / "docs" / "results" / "runs", "fig7")
    before, now = files.read(), files.read()
    of = load_study(REPOSITORY / "conf", "fig7")
    here = replace(now, runs=now.runs[now.runs["version"] == "paper"].assign(commit="new"))
    nothing_found = replace(here, search=now.search.assign(seeds=0))
    both = with_versions(nothing_found, before, of)
    assert len(both.runs) == len(before.runs)
    found = both.search[both.search["version"] != "paper"]
    assert len(both.search) == len(before.search) and (found["seeds"] > 0).all() and len(found)
    assert set(both.runs.loc[both.runs["version"] == "paper", "commit"]) == {"new"}
    assert "new" not in set(both.runs.loc[both.runs["version"] == "verified", "commit"])
    gone = of.model_copy(update={"versions": {"paper": of.versions["paper"]}})
    assert len(with_versions(here, before, gone).runs) == len(here.runs)


def test_a_block_waits_for_its_record(published: Path):
    for path in (published / "docs" / "results" / "runs").iterdir():
        path.unlink()
    publish(published, None)
    page = (published / "docs" / "results" / "ours.md").read_text()
    assert "Not published yet: `kedro results publish quickstart`." in page
    assert check(published) == ["quickstart: a page has a block of it, but there is no record"]


def test_a_figure_without_a_digest_has_none(tmp_path: Path):
    assert digest_of(tmp_path / "none.png") == ""
    assert digest_of(REPOSITORY / "docs" / "images" / "d_table1.png") == ""
    assert len(digest_of(REPOSITORY / "docs" / "images" / "features.png")) == 64


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rerun", "quickstar"], "study = 'quickstar': no such study; .* did you mean quickstart?"),
        (["rerun", "d_units"], "study = 'd_units': has no record in docs/results/runs; there are "),
        (["rerun", "quickstart", "--only=algorithm=fedgkt"], "--only algorithm = 'fedgkt': the st"),
        (["rerun", "quickstart", "--params=seed=1"], "seed = 1: the study varies this key"),
        (["publish", "fig99"], "study = 'fig99': no such study"),
        (
            ["publish", "d_units"],
            "study = 'd_units': no page of docs/results has a line <!-- study: d_units",
        ),
        (["publish", "--env=mnist"], "--env = 'mnist': is of a study; give its name, too"),
    ],
)
def test_what_cannot_be_published_or_made_again_is_refused_in_a_line(project, words, line):
    shutil.copytree(REPOSITORY / "docs" / "results", project / "docs" / "results")
    ended = CliRunner().invoke(results, words)
    assert ended.exit_code == 2 and ended.output.count("\n") == 1
    assert re.match(f"Error: {line.replace('?', '[?]')}", ended.output)


def cell_and_record():
    content = {"title": "Tiny", "grid": {"seed": [3]}, "parameters": {"algorithm": "m2fdp"}}
    setting = Setting("tiny", Study.model_validate(content), BASE, {}, {})
    (cell,) = expand(setting, {})
    was = {"accuracy": 0.9, "epsilon_verified": 4.0, "split": "a" * 64, "configuration": cell.hash}
    return cell, was


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({}, "same"),
        ({"accuracy": 0.9015}, "near"),
        ({"accuracy": 0.903}, "OTHER accuracy"),
        ({"epsilon_verified": 4.0 * (1 + 1e-9)}, "same"),
        ({"epsilon_verified": 4.1}, "OTHER ε"),
        ({"epsilon_verified": float("nan")}, "OTHER ε"),
        ({"epsilon_verified": float("inf")}, "OTHER ε"),
        ({"split": "b" * 64, "accuracy": float("nan")}, "OTHER split, accuracy"),
        ({"configuration": "c"}, "OTHER configuration"),
    ],
)
def test_a_run_made_again_is_compared_in_accuracy_epsilon_and_split(changes, now):
    cell, was = cell_and_record()
    metrics = [Metric("accuracy", 0.9, 0, 1), Metric("epsilon_verified", 4.0, 0, 1)]
    data = RunData(metrics, [], [RunTag("split_sha256", "a" * 64)])
    row = compared(cell, was | changes, data)
    assert row["now"] == now
    assert (row["accuracy now"], row["ε now"], row["split now"]) == ("0.9000", "4", "a" * 8)
    assert compared(cell, was, None)["now"] == "FAILED"


TINY = """
title: Tiny
parameters:
  training: {rounds: 2, local_steps: 1, batch_size: null}
  topology: {fanouts: [2, 3], trust: {ratios: [0.5]}}
arms:
  open: {algorithm: hfl, space: rates}
  noisy: {algorithm: hfl_dp, label: HFL-DP}
grid: {seed: [5]}
versions:
  tuned:
    search:
      seeds: [7]
      validation_fraction: 0.25
      spaces: {rates: {grids: [{training.learning_rate: [0.5]}]}}
claims:
  - {claim: It learns, source: J Fig. 5, paper: more than chance, measure: accuracy,
     of: {arm: open}, at_least: 0.01}
"""


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_study_is_run_published_checked_and_made_again(project):
    (project / "conf/base/studies").joinpath("tiny.yml").write_text(TINY)
    docs = project / "docs"
    (docs / "results").mkdir(parents=True)
    (docs / "images").mkdir()
    (docs / "results.md").write_text(INDEX)
    page = docs / "results" / "j.md"
    page.write_text(OURS.replace("quickstart", "tiny"))

    def invoke(group, *words: str, code: int = 0) -> str:
        ended = CliRunner().invoke(group, words)
        assert ended.exit_code == code, ended.output
        return ended.output

    assert "no runs of it are here" in invoke(results, "publish", "tiny", code=2)
    invoke(study, "tiny")
    assert "2 of 2 cells are finished." in invoke(results, "publish", "tiny")
    assert "| It learns |" in page.read_text() and "tiny-search.csv" in page.read_text()
    told = [line for line in check(project) if "studies" not in line]
    assert told == [] and "It learns" in (docs / "results.md").read_text()
    said = invoke(results, "rerun", "tiny", "--seeds=1")
    assert "As recorded: 2 of 2 runs." in said and "OTHER" not in said
    files = RecordFiles(docs / "results" / "runs", "tiny")
    changed(files.path(""), 'learning_rate"": 0.5', 'learning_rate"": 0.25')
    said = invoke(results, "rerun", "tiny", "--only=arm=open", code=1)
    assert "OTHER" in said and "As recorded: 0 of 1 run." in said


@pytest.mark.full
@pytest.mark.timeout(900)
def test_published_numbers_are_made_again_by_this_code(project):
    """A dozen of them, on records that every machine has."""
    shutil.copytree(REPOSITORY / "docs" / "results", project / "docs" / "results")
    ended = CliRunner().invoke(results, ["rerun", "quickstart", "--seeds=3"])
    assert ended.exit_code == 0, ended.output
    assert "As recorded: 12 of 12 runs." in ended.output
