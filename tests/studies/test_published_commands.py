"""Every command that a page gives for a table of results, at smoke scale, in a fresh clone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.finished import REPOSITORY
from tests.pages import commands

PAGES = [REPOSITORY / "docs/attacks.md", *sorted((REPOSITORY / "docs/results").glob("*.md"))]
# Which part is run, and on whose records, is for the whole scale.
OF_THE_WHOLE = ("--params", "--only", "--resume")


def published() -> list[tuple[str, ...]]:
    given = (arguments for page in PAGES for arguments in commands(page, "kedro study"))
    kept = (
        tuple(argument for argument in arguments if not argument.startswith(OF_THE_WHOLE))
        for arguments in given
    )
    return sorted({arguments for arguments in kept if arguments and arguments[0] != "report"})


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    source = f"file://{REPOSITORY}"
    subprocess.run(["git", "clone", "-q", "--depth=1", source, folder], check=True)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("arguments", published(), ids=" ".join)
def test_a_published_table_has_a_command_that_runs(clone, arguments):
    scale = [] if arguments[0] == "quickstart" else ["--scale=smoke"]  # a minute as it is
    order = [sys.executable, "-m", "kedro", "study", *arguments, *scale]
    environment = {**os.environ, "PYTHONPATH": str(clone / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(order, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (report,) = re.findall(r"(\S+/report\.md)", done.stdout)
    finished, all_cells = re.search(
        r"^(\d+) of (\d+) cells are finished",
        Path(clone, report).read_text(encoding="utf-8"),
        re.MULTILINE,
    ).groups()
    assert finished == all_cells
