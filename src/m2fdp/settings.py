"""Kedro's settings of this project, and the first of its modules that a command imports."""

# ruff: noqa: E402

import atexit
import gc
import os
import sys

from m2fdp.interruption import end_in_one_line

# The imports below take seconds, and Ctrl-C in one of them would print hundreds of lines.
# Notebooks and other commands, which import this too, have ways of their own.
_program, *_words = sys.argv or [""]
_command = next((word for word in _words if not word.startswith("-")), None)
if _program.endswith("kedro") and _command in ("run", "study"):
    end_in_one_line()

# Imports make half a million objects that live to the end. To search them for garbage, again
# and again and once more at exit, takes seconds.
gc.disable()
atexit.register(gc.freeze)

from mlflow.telemetry import set_telemetry_client

from m2fdp.hooks import RunHooks, TrackingHooks
from m2fdp.pipelines.catalog import UninterruptedCatalog
from m2fdp.pipelines.configuration import StrictConfigLoader

gc.freeze()
gc.enable()

# Nothing about a run is reported to the makers of the tools.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
set_telemetry_client()  # reads the variable again: Kedro's plugins have imported mlflow already

# A search for Databricks, which would import IPython.
os.environ.setdefault("MLFLOW_ENABLE_SGC_RUN_RESUMPTION_FOR_DATABRICKS_JOBS", "false")

# A tracking server that does not answer, or no longer: by default each request would take minutes.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "8")  # seconds
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")

HOOKS = (TrackingHooks(), RunHooks())
# TrackingHooks is that plugin's hook, adapted.
DISABLE_HOOKS_FOR_PLUGINS = ("kedro_mlflow",)

DATA_CATALOG_CLASS = UninterruptedCatalog

CONFIG_LOADER_CLASS = StrictConfigLoader
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    # An environment holds only the keys that differ, down to single keys of a block.
    "merge_strategy": {"parameters": "soft"},
}
