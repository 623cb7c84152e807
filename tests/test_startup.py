"""What a command costs before it does anything: heavy libraries load where they are used."""

import json
import os
import subprocess
import sys

import pytest
from tests.finished import REPOSITORY, make_project

# `mixtures` extends classes of dp-accounting, and is imported with its first use.
EVERY_MODULE = """
import importlib, pkgutil, m2fdp
LATE = ("m2fdp.__main__", "m2fdp.core.privacy.mixtures")
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


def test_libraries_that_few_runs_need_load_with_their_first_use():
    seldom = ("great_expectations", "opacus", "dp_accounting", "sklearn", "torchvision", "ray")
    assert loaded(EVERY_MODULE, *seldom, "m2fdp.hooks") == {"m2fdp.hooks"}


# What commands say, one after the other, and what they have imported when all have ended.
COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from {module} import main
ends = []
for words in json.loads(sys.argv.pop()):
    sys.argv[:], said = words, io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            ends.append([end.code, " ".join(said.getvalue().split())])
print(json.dumps([ends, list(sys.modules)]))
"""
HEAVY = {"torch", "mlflow", "matplotlib", "pandas", "scipy", "sklearn", "sqlalchemy"}
HEAVY |= {"great_expectations"}


def check_ends(module: str, commands: list[tuple[list[str], str]]) -> None:
    """Each command says this in one line and ends as bad input, or as help; none of them imports
    what is heavy."""
    script, words = COMMANDS.format(module=module), json.dumps([words for words, _ in commands])
    command = [sys.executable, "-c", script, words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    ends, imported = json.loads(done.stdout.splitlines()[-1])
    for (words, says), (code, said) in zip(commands, ends, strict=True):
        assert says in said
        assert code == (0 if words[-1] == "--help" else 2)
    assert not HEAVY & set(imported)


def test_help_and_wrong_keys_types_and_names_load_no_heavy_library():
    commands = {
        "--help": "mlflow Use mlflow-specific commands",
        "run --help": "--params",
        "study --help": "--scale",
        "run --params=trainin.rounds=1": "trainin = {'rounds': 1}: unknown key",
        "run --params=privacy.epsilon=-1": "privacy.epsilon = -1",
        "run --env=fashion": "no such environment",
        "run --async": "--async = True",
        "run --pipelines=train": "--pipelines = 'train': valid are __default__, attack",
        "study fig99": "study = 'fig99': no such study; the studies are attack_board, ",
        "study quickstart --only=arm=hfl": "--only = 'arm': does not vary",
        "study quickstart --scale=tiny": "--scale = 'tiny': quickstart has no such scale",
        "study quickstart --over=": "--over = '': is an option of `kedro study sweep`",
        "study quickstart --env=nowhere": "--env = 'nowhere': no such environment",
        "study quickstart --params=training.rounds=0": "training.rounds = 0: Input should be",
        "study quickstart --params=seed=1": "seed = 1: the study varies this key",
        "study quickstart --params=trainin.rounds=1": "trainin = {'rounds': 1}: unknown key",
        "results publish fig99": "study = 'fig99': no such study",
        "results rerun fig99": "study = 'fig99': no such study",
    }
    ends = [(["kedro", *words.split()], says) for words, says in commands.items()]
    check_ends("kedro.framework.cli", ends)


NODES = """
servers: {cloud: "127.0.0.1:1", edge0: "127.0.0.1:2"}
devices: {device0: 5, device1: 5}
shape: [1, 8, 8]
classes: 10
"""


def test_a_plan_that_is_refused_loads_no_heavy_library(tmp_path):
    nodes = tmp_path / "nodes.yml"
    nodes.write_text(NODES)
    options = [f"--nodes={nodes}", "--authority=authority", f"-o{tmp_path}/plan.json"]
    commands = {
        "--params=trainin.rounds=1": "trainin = {'rounds': 1}: unknown key",
        "--params=privacy.epsilon=-1": "privacy.epsilon = -1",
        "--params=algorithm=m2fd": "algorithm = 'm2fd': is unknown",
        "--nodes=nowhere.yml": "nowhere.yml = '(file)': can't be read",
    }
    ends = [(["m2fdp", "plan", *options, word], says) for word, says in commands.items()]
    check_ends("m2fdp.deployment.commands", ends)


def test_what_a_notebook_imports_sets_up_no_log_and_no_display():
    code = "import m2fdp.pipelines.tracking, m2fdp.studies.order, m2fdp.studies.report"
    assert loaded(code, "kedro.framework.project") == set()


def test_the_digits_are_read_without_scikit_learn():
    code = """
from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.sources import load_dataset
load_dataset(DatasetConfig())
"""
    assert loaded(code, "sklearn", "scipy.stats", "m2fdp.core.data") == {"m2fdp.core.data"}


@pytest.mark.skipif(
    not str(REPOSITORY).isascii(),
    reason="Python reads where an editable package lies in the locale's encoding, before all else",
)
@pytest.mark.parametrize(
    ("folder", "locale"),
    [
        ("Übung 1", {"LC_ALL": "C"}),
        ("plain", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),  # ASCII alone
    ],
)
def test_a_run_needs_no_locale(tmp_path, empty_store, folder, locale):
    """Files are UTF-8; streams replace what they have no character for."""
    make_project(tmp_path / folder, empty_store)
    command = [sys.executable, "-m", "kedro", "run", "--pipelines=privacy"]
    run = subprocess.run(
        command, cwd=tmp_path / folder, env=os.environ | locale, capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr.decode(errors="replace")
    assert ("?" if folder == "plain" else "ε") in run.stdout.decode()
    assert (tmp_path / folder / "data/08_reporting/single/privacy_ledger.csv").is_file()
