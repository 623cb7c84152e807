"""What README and docs tell users to type."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.finished import REPOSITORY
from tests.pages import PAGES

# Where the commands of this Python's environment are found.
TOOLS = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_can_be_copied_as_they_are_shown(page):
    """In a table Markdown wants a backslash before a bar, which a shell would hand on."""
    assert [
        line for line in page.read_text().splitlines() if "kedro" in line and r"\|" in line
    ] == []


def test_tests_that_a_page_names_are_there():
    """As `tests/file.py::test_name`, where a page says what catches a mistake."""
    named = {
        (file, test)
        for page in PAGES
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text("utf-8"))
    }
    assert len(named) >= 10
    missing = [
        f"{file}::{test}"
        for file, test in sorted(named)
        if f"\ndef {test}(" not in (REPOSITORY / file).read_text("utf-8")
    ]
    assert missing == []


def test_ten_ways_are_ten_each_with_a_test():
    page = (REPOSITORY / "docs" / "ten-ways.md").read_text("utf-8")
    ways = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    ranked = [way for way in ways if re.match(r"\d+\. ", way)]
    assert [int(way.partition(".")[0]) for way in ranked] == list(range(1, 11))
    assert all("::test_" in way for way in ranked)


def test_pages_import_from_the_two_public_modules_alone():
    """So that what stands elsewhere in the package may move."""
    found = {
        f"{page.name}: {line}"
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"(from|import) m2fdp", line)
        and not re.match(r"from m2fdp(\.extend)? import ", line)
    }
    assert found == set()


def test_the_spine_of_the_core_is_there_and_can_be_read_in_a_day():
    page = (REPOSITORY / "docs" / "core-in-a-day.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    files = [file for row in rows for file in re.findall(r"`([\w/]+\.py)`", row)]
    core = REPOSITORY / "src" / "m2fdp" / "core"
    lines = [len((core / file).read_text("utf-8").splitlines()) for file in files]
    assert len(files) >= 20 and sum(lines) <= 4_400


def test_the_architecture_has_few_contracts_and_few_words():
    page = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    tables = re.findall(r"\n\|[- |]+\|\n((?:\|.*\n)+)", page)
    _, contracts, _ = (len(table.splitlines()) for table in tables)
    words = (REPOSITORY / "docs" / "glossary.md").read_text("utf-8").count("\n| ") - 1
    assert contracts <= 15 and words <= 50


def test_the_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text("utf-8").splitlines()) <= 110


@pytest.mark.full
def test_a_clone_makes_what_the_remote_lacks_and_fetches_what_it_has(tmp_path):
    """With the project's own DVC configuration and the command of `make data`."""
    recipe = (REPOSITORY / "Makefile").read_text()
    assert "dvc repro --pull" in recipe[recipe.index("\ndata: venv") :].split("\n\n")[0]

    def sh(folder, *command):
        environment = os.environ | TOOLS | {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        return result.stdout + result.stderr

    first, second = tmp_path / "first", tmp_path / "second"
    (first / ".dvc").mkdir(parents=True)
    for file in (".dvc/config", ".dvc/.gitignore", ".gitignore"):
        shutil.copy(REPOSITORY / file, first / file)
    stage = "stages: {split: {cmd: date +%N > data/split.csv, outs: [data/split.csv]}}"
    (first / "dvc.yaml").write_text(stage)
    (first / "data").mkdir()
    (first / "data" / ".gitkeep").touch()
    for command in ("init -q", "config --global user.name a", "config --global user.email a@b.c"):
        sh(first, "git", *command.split())
    sh(first, "dvc", "repro", "--pull")  # the remote's folder does not exist yet
    sh(first, "dvc", "push")
    sh(first, "git", "add", "-A")
    sh(first, "git", "commit", "-qm", "first")

    sh(tmp_path, "git", "clone", "-q", "first", "second")
    store = str(first / ".dvcstore")
    sh(second, "dvc", "remote", "modify", "--local", "store", "url", store)
    sh(second, "dvc", "repro", "--pull")
    made, fetched = ((folder / "data/split.csv").read_bytes() for folder in (first, second))
    assert fetched == made  # a stage that runs again would make another file
    (second / "data/split.csv").unlink()
    shutil.rmtree(second / ".dvc/cache")
    sh(second, "dvc", "pull")
    assert (second / "data/split.csv").read_bytes() == made
    assert sh(second, "git", "status", "--short") == ""


def test_a_split_that_a_clone_pulls_can_be_trained_on(tmp_path):
    clone, split = tmp_path / "clone", "data/05_model_input/splits/iid-0/manifest.csv"
    environment = os.environ | TOOLS | {"PYTHONPATH": str(clone / "src")}
    params = "--params=partition.scheme=iid,seed=0,cell=splits/iid-0,training.rounds=1"
    for folder, command in (
        (tmp_path, ["git", "clone", "-q", "--depth=1", f"file://{REPOSITORY}", "clone"]),
        (clone, ["dvc", "pull", "-q", split]),
        (clone, ["kedro", "run", "--pipelines=training", params]),
    ):
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    recorded = (clone / "dvc.lock").read_text()
    assert hashlib.md5((clone / split).read_bytes()).hexdigest() in recorded
    assert (clone / "data/06_models/splits/iid-0/model.pt").is_file()
