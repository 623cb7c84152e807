"""What the settings change in the process, and that other packages still heed it."""

import gc
import importlib
import logging
import os
import subprocess
import sys
from importlib.metadata import entry_points

import click
import pytest
from mlflow import environment_variables
from tests.finished import REPOSITORY

from m2fdp import settings, startup


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


def run_python(code, options=(), closed="", cwd=REPOSITORY):
    """What a Python with the settings says: it ends well, without a word to stderr."""
    script = f'exec "$0" "$@" {closed}'
    command = ["sh", "-c", script, sys.executable, *options, "-c", f"import m2fdp.settings\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_closed_output_is_written_to_in_silence():
    code = "import logging\nlogging.getLogger('m2fdp').warning('said')\nprint('said')"
    assert "said" in run_python(code)
    assert run_python(code, closed=">&-") == ""


def test_below_the_root_the_log_is_that_of_the_root():
    code = "import logging\nprint('level', logging.getLogger('kedro').level)"
    for folder in (REPOSITORY, REPOSITORY / "src" / "m2fdp"):
        assert f"level {logging.WARNING}\n" in run_python(code, cwd=folder)


def test_of_warnings_that_are_errors_libraries_are_spared():
    code = """
import warnings
warnings.warn_explicit("x", UserWarning, "library.py", 1, "library")
try:
    warnings.warn_explicit("x", UserWarning, "ours.py", 1, "m2fdp.core.data")
except UserWarning:
    print("stopped")
"""
    assert run_python(code, ["-W", "error"]) == "stopped\n"


def test_imports_leave_nothing_to_the_garbage_collector():
    code = (
        "import gc; list(m2fdp.settings.HOOKS)\n"
        "print(gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()[0])"
    )
    enabled, frozen, threshold = run_python(code).split()
    assert (enabled, int(threshold)) == ("True", startup.COLLECTED_AFTER)
    assert int(frozen) > 100_000


def test_a_session_gets_the_same_hooks_each_time():
    first, again = list(settings.HOOKS), list(settings.HOOKS)
    assert [type(hook).__name__ for hook in first] == ["RunHooks"]
    assert all(one is other for one, other in zip(first, again, strict=True))


def plugin_commands() -> str:
    """Where kedro-mlflow tells Kedro that its commands are."""
    (entry,) = entry_points(group="kedro.project_commands", name="kedro_mlflow")
    return f"{entry.module}:{entry.attr}"


def test_the_stand_in_is_where_kedro_looks_for_the_plugins_commands():
    assert plugin_commands() == f"{startup.PLUGIN_COMMANDS}:commands"


def test_kedro_mlflow_says_and_does_what_it_does_without_the_stand_in(monkeypatch):
    own = importlib.import_module(startup.PLUGIN_COMMANDS)
    monkeypatch.delitem(sys.modules, startup.PLUGIN_COMMANDS)
    startup.defer_plugin_commands()
    stand_in = importlib.import_module(startup.PLUGIN_COMMANDS)
    assert stand_in is not own
    assert stand_in.commands.name == own.commands.name
    assert stand_in.commands.help == own.commands.help
    assert list(stand_in.commands.commands) == list(own.commands.commands) == ["mlflow"]
    group, owns = stand_in.commands.commands["mlflow"], own.commands.commands["mlflow"]
    assert group.get_short_help_str() == owns.get_short_help_str()
    context = click.Context(group)
    assert group.list_commands(context) == owns.list_commands(context)
    assert {"init", "modelify", "ui"} <= set(group.list_commands(context))
    assert group.get_command(context, "ui").help == owns.get_command(context, "ui").help
    assert sys.modules[startup.PLUGIN_COMMANDS] is not stand_in


def test_a_plugin_that_is_imported_already_stays():
    own = importlib.import_module(startup.PLUGIN_COMMANDS)
    startup.defer_plugin_commands()
    assert sys.modules[startup.PLUGIN_COMMANDS] is own


def test_the_collector_rests_during_the_block_only(monkeypatch):
    monkeypatch.setattr(startup.atexit, "register", lambda function: None)
    threshold = gc.get_threshold()
    try:
        with startup.imports_uncollected():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)


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
