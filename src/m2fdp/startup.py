"""What a command changes in its process before and after the imports that take seconds.

Kedro imports a project's settings first, so they are the place for it; there is no hook as early.
What this relies on, of other packages, is tested in `tests/test_settings.py`: the names of MLflow's
environment variables, and that MLflow reads all but the first of them when it needs them.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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


def end_command_in_one_line() -> None:
    """Let Ctrl-C in one of the imports of `kedro run` or `kedro study` print one line.

    It would print hundreds. Notebooks and other commands, which import the settings too, have ways
    of their own.
    """
    program, *words = sys.argv or [""]
    command = next((word for word in words if not word.startswith("-")), None)
    if program.endswith("kedro") and command in ("run", "study"):
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
    gc.enable()


def set_environment() -> None:
    """The settings of `ENVIRONMENT` that the user has not set."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
