"""The project's own files agree with each other."""

import re
import tomllib
from importlib.metadata import version
from itertools import product

import yaml
from tests.finished import REPOSITORY

import m2fdp
from m2fdp import load_config
from m2fdp.core.experiment.checks import check_config

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_a_commit_is_checked_by_what_lint_runs():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.M)[1]
    linted = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    configuration = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in configuration["repos"] for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == linted
    assert not any(hook["pass_filenames"] for hook in hooks)


def test_the_newest_entry_of_the_changelog_is_this_version():
    newest = re.search(r"^## \[(.+?)\]", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)[1]
    assert newest == PROJECT["version"]


def test_what_dvc_runs_is_a_run():
    """Every stage's command, with every row of its matrix: no key that nothing reads."""
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    commands = []
    for stage in stages.values():
        names, rows = zip(*stage.get("matrix", {"": [""]}).items(), strict=True)
        for row in product(*rows):
            command = stage["cmd"]
            for name, value in zip(names, row, strict=True):
                command = command.replace(f"${{item.{name}}}", str(value))
            commands.append(command)
    assert len(commands) == 13
    for command in commands:
        parameters = re.search(r"--params=(\S+)", command)[1]
        check_config(load_config(dict(pair.split("=") for pair in parameters.split(","))))


def test_the_package_knows_its_version():
    assert m2fdp.__version__ == version("m2fdp")


def test_what_is_declared_is_pinned():
    """In the lock, or in that of the extra."""

    def names(lines):
        return {re.split(r"[\[=<>]", line)[0].lower().replace("_", "-") for line in lines}

    locks = [
        (REPOSITORY / f"requirements{which}.lock").read_text().splitlines()
        for which in ("", "-docs", "-ray")
    ]
    extras = PROJECT["optional-dependencies"]
    declared = [PROJECT["dependencies"], *(extras[name] for name in ("dev", "docs", "ray"))]
    assert names(sum(declared, [])) - names(sum(locks, [])) == set()
