"""What the settings change in the process, and that other packages still heed it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
from mlflow import environment_variables

from m2fdp import startup


def read_by_mlflow(name: str) -> object:
    """The value of one of MLflow's settings, whose variable may be private to MLflow."""
    variable = getattr(environment_variables, name, None)
    return (variable or getattr(environment_variables, f"_{name}")).get()


def test_mlflow_reads_every_variable_when_it_needs_it(monkeypatch):
    for name in startup.ENVIRONMENT:
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    before = {name: read_by_mlflow(name) for name in startup.ENVIRONMENT}
    startup.set_environment()
    for name, value in startup.ENVIRONMENT.items():
        read = read_by_mlflow(name)
        assert str(read).lower() == value
        assert read != before[name]


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
    startup.set_environment()
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "3"


def test_imports_leave_nothing_to_the_garbage_collector():
    code = "import gc, m2fdp.settings; print(gc.isenabled(), gc.get_freeze_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    enabled, frozen = done.stdout.split()
    assert enabled == "True"
    assert int(frozen) > 100_000


def test_the_collector_rests_during_the_block_only(monkeypatch):
    monkeypatch.setattr(startup.atexit, "register", lambda function: None)
    try:
        with startup.imports_uncollected():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/bin/kedro", "run"], True),
        (["kedro", "--verbose", "study", "fig5"], True),
        (["kedro", "ipython"], False),
        (["/bin/jupyter", "run"], False),
        ([], False),
    ],
)
def test_only_runs_and_studies_end_in_one_line(monkeypatch, words, expected):
    called = []
    monkeypatch.setattr(startup, "end_in_one_line", lambda: called.append(True))
    monkeypatch.setattr(sys, "argv", words)
    startup.end_command_in_one_line()
    assert bool(called) == expected
