"""What a command changes in its process before and after the imports that take seconds.

Kedro imports a project's settings first, so they are the place for it; there is no hook as early.
What this relies on, of other packages, is tested in `tests/test_settings.py`: the names of MLflow's
environment variables, and that MLflow reads them when it needs them; and that
kedro-mlflow has its commands where `PLUGIN_COMMANDS` says.
"""

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
import yaml
from kedro.framework.project import LOGGING
from kedro.utils import find_kedro_project

from m2fdp.interruption import end_in_one_line

ENVIRONMENT = {
    # Nothing about a run is reported to the makers of the tools.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A search for Databricks, which would import IPython.
    "MLFLOW_ENABLE_SGC_RUN_RESUMPTION_FOR_DATABRICKS_JOBS": "false",
    # A tracking server that does not answer, or no longer: by default each request would take
    # minutes.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "8",  # seconds
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
# Objects made, less those gone, before the collector looks at the new ones. Python's own 700 would
# have it look a thousand times while libraries load, and seldom find anything.
COLLECTED_AFTER = 50_000
KEDRO_LOGGING = "KEDRO_LOGGING_CONFIG"  # the environment variable of a user's own log settings
PLUGIN_COMMANDS = "kedro_mlflow.framework.cli.cli"


def end_command_in_one_line() -> None:
    """Let Ctrl-C in one of the imports of the project's own commands print one line.

    It would print hundreds. Notebooks and other commands, which import the settings too, have ways
    of their own.
    """
    program, *words = sys.argv or [""]
    command = next((word for word in words if not word.startswith("-")), None)
    if program.endswith("kedro") and command in ("promote", "run", "study", "ui"):
        end_in_one_line()


@contextmanager
def imports_uncollected() -> Iterator[None]:
    """Keep the garbage collector from what the imports inside the block leave.

    They make half a million objects that live to the end. To search them for garbage, again and
    again and once more at exit, takes seconds.
    """
    gc.disable()
    atexit.register(gc.freeze)
    yield
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER, *gc.get_threshold()[1:])
    gc.enable()


def set_environment() -> None:
    """Set what of `ENVIRONMENT` the user has not set; processes started here write UTF-8."""
    for name, value in (ENVIRONMENT | {"PYTHONUTF8": "1"}).items():
        os.environ.setdefault(name, value)


def log_as_in_the_root() -> None:
    """The project's log settings below its root, too: Kedro looks in the working directory."""
    root = find_kedro_project(Path.cwd())
    settings = root and root / "conf" / "logging.yml"
    if settings and root != Path.cwd() and settings.is_file() and not os.getenv(KEDRO_LOGGING):
        LOGGING.configure(yaml.safe_load(settings.read_text(encoding="utf-8")))


def let_libraries_warn() -> None:
    """Where warnings are to be errors (`PYTHONWARNINGS=error`), those of this project alone are:
    libraries warn of what others make of them, and none could be imported."""
    if any(option.startswith("error") and ":" not in option for option in sys.warnoptions):
        warnings.simplefilter("default")
        warnings.filterwarnings("error", module="m2fdp")


class _PluginGroup(click.Group):
    """`kedro mlflow`, of which the plugin is imported when somebody asks for its commands."""

    def list_commands(self, context: click.Context) -> list[str]:
        return self._own().list_commands(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return self._own().get_command(context, name)

    @staticmethod
    def _own() -> click.Group:
        if not hasattr(sys.modules.get(PLUGIN_COMMANDS), "mlflow_commands"):
            sys.modules.pop(PLUGIN_COMMANDS, None)  # the stand-in
        group: click.Group = import_module(PLUGIN_COMMANDS).mlflow_commands
        return group


def defer_plugin_commands() -> None:
    """Let `kedro mlflow` be known by name alone.

    Kedro imports the commands of all plugins for each of its own, and this plugin's import MLflow.
    """
    if PLUGIN_COMMANDS in sys.modules:
        return
    commands = click.Group("Mlflow", help="Kedro plugin for interactions with mlflow.")
    group = _PluginGroup("mlflow", help="Use mlflow-specific commands inside kedro project.")
    commands.add_command(group)
    sys.modules[PLUGIN_COMMANDS] = stand_in = ModuleType(PLUGIN_COMMANDS)
    vars(stand_in)["commands"] = commands
