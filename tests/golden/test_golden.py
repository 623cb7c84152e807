"""A third of the golden ledgers on every change; the others, runs and audits in the full suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.golden import ledgers, runs, sights
from tests.golden.compare import load

REPOSITORY = Path(__file__).parents[2]


def test_a_third_of_the_ledgers_and_all_refusals_are_as_they_were():
    assert list(ledgers.differences(load("ledger"), every=3)) == []


def test_a_fifth_of_who_reads_what_is_as_it_was():
    assert list(sights.differences(load("sights"), load("ledger"), every=5)) == []


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["ledger", "sights", "runs", "audits"])
def test_all_results_are_as_they_were(what):
    """In a process of its own: runs change the working directory and keep Kedro's settings."""
    if what == "runs" and runs.processor() not in load("runs"):
        pytest.skip("no digests of runs on this kind of processor")
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "src"), os.environ.get("PYTHONPATH")]))
    compared = subprocess.run(
        [sys.executable, "-m", "tests.golden.compare", what],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
