"""The code of README and docs/ runs, and their commands are taken, as they stand there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from kedro.framework.project import settings
from tests.pages import PAGES, blocks, commands, write_files

from m2fdp.cli import results, run, study
from m2fdp.core.experiment.checks import check_config
from m2fdp.given.loading import parse_config
from m2fdp.pipelines.selection import check_names, check_selection
from m2fdp.studies.order import part_of
from m2fdp.studies.study import RESERVED_NAMES, load_study, scaled

WITH_PYTHON = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]

# One after the other in one namespace; a traceback tells the page and its line.
RUN_BLOCKS = """
import json, sys
page, blocks = json.load(sys.stdin)
names = {"__name__": "__main__"}
for line, text in blocks:
    exec(compile("\\n" * line + text, page, "exec"), names)
"""


@pytest.fixture
def own_modules(project: Path) -> Iterator[None]:
    """What a page's files define is forgotten with the page."""
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(project)):
            del sys.modules[name]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_runs(page, project):
    """In a project's root, from which its own modules are imported."""
    write_files(page, project)
    code = [(b.line, b.text) for b in blocks(page) if b.language == "python" and b.file is None]
    result = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKS],
        input=json.dumps([str(page), code]),
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_runs_are_taken(page, project, own_modules):
    """What is found wrong before a run looks at data is not in any of them."""
    write_files(page, project)
    for arguments in commands(page, "kedro run"):
        given = run.make_context("run", list(arguments)).params
        check_names(given)
        check_selection(given)
        loader = settings.CONFIG_LOADER_CLASS(
            str(project / "conf"),
            given["env"],
            runtime_params=given["params"],
            **settings.CONFIG_LOADER_ARGS,
        )
        check_config(parse_config(loader["parameters"]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_studies_are_known(page, project):
    write_files(page, project)
    for arguments in commands(page, "kedro study"):
        if not arguments or arguments[0] in ("NAME", "<name>", *RESERVED_NAMES):
            continue
        given = study.make_context("study", list(arguments)).params
        plan = load_study(project / "conf", given["name"], given["env"])
        if given["scale"] is not None:
            plan = scaled(given["name"], plan, given["scale"])
        assert part_of(plan, given["only"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_typed_for_results_is_taken(page):
    for name, *arguments in commands(page, "kedro results"):
        command = results.get_command(click.Context(results), name)
        assert command.make_context(name, arguments).info_name == name
