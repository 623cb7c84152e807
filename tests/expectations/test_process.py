"""The process that knows Great Expectations: it answers, dies alone, and outlives nobody."""

import os
import pickle
import signal
import subprocess
import sys

import pandas as pd
import psutil
import pytest

from m2fdp.expectations.process import Checker, UncheckedError, beside, conclude, settle

TABLE = pd.DataFrame({"sample": [0, 1], "split": ["train", "test"]})
CASE = {
    "table": TABLE,
    "name": "rows",
    "rules": [
        ("no sample twice", "ValuesToBeUnique", {"column": "sample"}, None),
        (
            "train first",
            "ValuesToBeBetween",
            {"column": "sample", "max_value": 0},
            ("split", True, "train"),
        ),
    ],
}
# A process that has started a checker says its number, and goes on until it is stopped.
PARENT = """
import time
from m2fdp.expectations.process import Checker
checker = Checker()
checker.start()
print(checker._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def checker():
    one = Checker()
    yield one
    one.stop()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_whoever_has_started_it(signum):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signum)
    parent.communicate()
    assert psutil.wait_procs([child], timeout=60)[1] == []


def test_ctrl_c_is_not_for_it(checker):
    checker.start()
    assert os.getpgid(checker._process.pid) != os.getpgid(0)


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "idle"])
def test_one_that_dies_leaves_its_question_open_and_the_next_has_another(checker, asked):
    checker.start()
    first = checker._process.pid
    if asked:
        checker.ask("a", CASE)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(UncheckedError, match=r"has died \(exit code -9\)"):
        while True:  # until the pipe is known to be broken
            checker.ask("a", CASE)
            checker.verdict("a")
    checker.start()
    assert checker._process.pid != first


def test_what_it_can_not_check_is_no_verdict_and_it_goes_on(checker):
    checker.ask("odd", CASE | {"rules": [("odd", "ToBeOdd", {}, None)]})
    checker.ask("sound", CASE)
    with pytest.raises(UncheckedError, match="the split: AttributeError: .*ColumnToBeOdd"):
        checker.verdict("odd")
    first = checker._process.pid
    assert checker.verdict("sound").broken == ()
    # What is known is not asked again.
    checker.ask("sound", {})
    assert "Great Expectations" in checker.verdict("sound").page
    assert checker._process.pid == first


def test_nobody_waits_to_ask(checker, tmp_path, monkeypatch):
    """The case is taken while the library loads: here it never has."""
    (tmp_path / "great_expectations.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    large = pd.concat([TABLE] * 20_000)
    assert len(pickle.dumps(large)) > 2**20  # far more than a pipe holds
    checker.ask("large", CASE | {"table": large})
    assert checker._process.poll() is None


def refuse():
    raise ValueError("broken")


def test_outside_a_block_nobody_goes_on_without_the_verdict():
    with pytest.raises(ValueError, match="broken"):
        conclude(refuse)
    settle()


def test_inside_a_block_the_verdict_waits_for_settle():
    done = []
    with beside():
        conclude(lambda: done.append(1))
        assert done == []
        settle()
        settle()
        assert done == [1]


def test_a_refusal_stays_one_until_the_block_ends():
    with beside():
        conclude(refuse)
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                settle()
    settle()
