"""The project's own files agree with each other."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version

import yaml
from tests.finished import REPOSITORY

import m2fdp

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
