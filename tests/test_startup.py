"""What a command costs before it does anything: heavy libraries load where they are used."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.environment_variables import MLFLOW_SERVER_ENABLE_JOB_EXECUTION

REPOSITORY = Path(__file__).parents[1]

# Of an idle machine. Tests share theirs, so they measure CPU time and allow twice as much.
IMPORT_S, RUN_S, MARGIN = 2.0, 8.0, 2.0

# `mixtures` extends a class of dp-accounting, and is itself imported with its first use.
EVERY_MODULE = """
import importlib, pkgutil, m2fdp
for module in pkgutil.walk_packages(m2fdp.__path__, "m2fdp."):
    if module.name not in ("m2fdp.__main__", "m2fdp.privacy.mixtures"):
        importlib.import_module(module.name)
"""

# The frameworks first, so that only what the library adds is counted; a run with privacy
# needs dp-accounting, which is imported late.
OWN_IMPORTS = """
import mlflow, torch
import kedro_mlflow.framework.hooks.mlflow_hook, mlflow.store.tracking.sqlalchemy_store
import time
start = time.process_time()
import m2fdp.settings, m2fdp.pipeline_registry, m2fdp.pipelines.training.pipeline
import m2fdp.pipelines.audit.pipeline, m2fdp.pipelines.evaluation.pipeline, dp_accounting
print(time.process_time() - start)
"""


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loaded(code: str, *libraries: str) -> set[str]:
    """Those of the libraries that a new process has imported after the code."""
    return set(libraries) & set(python(f"{code}\nimport sys; print(*sys.modules)").split())


def test_the_command_line_itself_loads_no_heavy_library():
    heavy = ("torch", "mlflow", "great_expectations", "pandas", "matplotlib", "scipy")
    assert loaded("import m2fdp.cli", *heavy, "m2fdp.cli") == {"m2fdp.cli"}


def test_libraries_that_few_runs_need_load_with_their_first_use():
    seldom = ("great_expectations", "opacus", "dp_accounting", "sklearn", "torchvision", "ray")
    assert loaded(EVERY_MODULE, *seldom, "m2fdp.hooks") == {"m2fdp.hooks"}


def test_the_pages_about_the_runs_start_one_worker_and_no_jobs():
    make = ["make", "--dry-run", "ui"]
    said = subprocess.run(make, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    # More of them import for longer than MLflow waits where other processes compute.
    assert "mlflow ui --workers 1" in said
    assert f"{MLFLOW_SERVER_ENABLE_JOB_EXECUTION.name}=false" in said


@pytest.mark.full
def test_the_librarys_own_imports_are_quick():
    assert float(python(OWN_IMPORTS)) < MARGIN * IMPORT_S


@pytest.mark.full
def test_a_run_of_one_round_is_quick_once_its_manifest_has_passed(project):
    command = [sys.executable, "-m", "kedro", "run", "--params=training.rounds=1"]
    subprocess.run(command, check=True, capture_output=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert seconds < MARGIN * RUN_S
