"""What a command costs before it does anything: heavy libraries load where they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

# `mixtures` and `loss_sums` extend classes of dp-accounting, and are imported with their first use.
EVERY_MODULE = """
import importlib, pkgutil, m2fdp
LATE = ("m2fdp.__main__", "m2fdp.privacy.mixtures", "m2fdp.privacy.loss_sums")
for module in pkgutil.walk_packages(m2fdp.__path__, "m2fdp."):
    if module.name not in LATE:
        importlib.import_module(module.name)
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


# What `kedro WORDS` has imported when it ends, after what it said.
COMMAND = """
import sys
from kedro.framework.cli import main
sys.argv[:] = ["kedro", *{words!r}]
try:
    main()
except SystemExit as end:
    print("exit code", end.code)
print("imported", *sys.modules)
"""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--help"], 0, "mlflow Use mlflow-specific commands"),
        (["run", "--help"], 0, "--params"),
        (["study", "--help"], 0, "--scale"),
        (["run", "--params=trainin.rounds=1"], 2, "trainin = {'rounds': 1}: unknown key"),
        (["run", "--params=privacy.epsilon=-1"], 2, "privacy.epsilon = -1"),
        (["run", "--env=fashion"], 2, "no such environment"),
        (["run", "--async"], 2, "--async = True"),
    ],
)
def test_help_and_refusals_need_neither_torch_nor_mlflow(words, code, says):
    command = [sys.executable, "-c", COMMAND.format(words=words)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert says in " ".join((done.stdout + done.stderr).split())
    assert f"exit code {code}\n" in done.stdout
    imported = done.stdout.rpartition("imported ")[2].split()
    assert "m2fdp.cli" in imported
    heavy = {"torch", "mlflow", "matplotlib", "pandas", "scipy", "sqlalchemy"}
    assert not heavy & set(imported)


def test_what_a_notebook_imports_sets_up_no_log_and_no_display():
    code = "import m2fdp.pipelines.tracking, m2fdp.studies.order, m2fdp.studies.report"
    assert loaded(code, "kedro.framework.project") == set()


def test_the_digits_are_read_without_scikit_learn():
    code = """
from m2fdp.config import DatasetConfig
from m2fdp.data.sources import load_dataset
load_dataset(DatasetConfig())
"""
    assert loaded(code, "sklearn", "scipy.stats", "m2fdp.data") == {"m2fdp.data"}
