"""The commands of `kedro results`, about published numbers: `check`, `publish` and `rerun`.

`m2fdp.cli` finds them where a project has this folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from kedro.utils import find_kedro_project

from m2fdp import startup
from m2fdp.cli import OPTIONS
from m2fdp.core.errors import InputError, among
from m2fdp.studies.order import Order, check_order, read_study
from tools.pages import DOCS, read_pages, recorded


@click.command()
def check() -> None:
    """Say what disagrees among records, pages, figures and the studies' files."""
    from tools.publishing import check as disagreements

    lines = disagreements(_project())
    for line in lines:
        click.echo(line)
    if lines:
        click.echo("`kedro results publish` makes pages and figures of the records.", err=True)
        click.get_current_context().exit(1)
    click.echo("Records, pages, figures and studies agree.")


@click.command(params=[OPTIONS["env"]])
@click.argument("name", required=False)
def publish(name: str | None, env: str | None) -> None:
    """Make the record of study NAME from its finished runs, then its figures, blocks and the index.

    Without NAME records stay as they are.
    """
    identity = _to_publish(_project(), name, env)
    from tools.publishing import publish as write

    write(_project(), identity)


@click.command(params=[OPTIONS["env"], OPTIONS["params"]])
@click.argument("name")
@click.option(
    "--only",
    metavar="KEY=VALUE",
    multiple=True,
    help="A part of the record, as `kedro study` takes one.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=None,
    help="So many seeds, the first ones; by default all.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=None,
    help="Worker processes; by default one a core.",
)
def rerun(
    name: str, only: tuple[str, ...], seeds: int | None, workers: int | None, **of_order: Any
) -> None:
    """Make recorded runs of study NAME again by this code, at recorded schedules, and compare.

    Ends with 1 where a number is not what it was.
    """
    order, project = Order(name, **of_order), _project()
    check_order(project, order, only)
    with startup.imports_uncollected():
        from m2fdp.pipelines.tracking import closing_runs
        from tools.rerun import check_recorded
        from tools.rerun import rerun as run_again

    chosen = check_recorded(project, order, only, seeds)
    with closing_runs():
        agree = run_again(project, order, chosen, workers)
    if not agree:
        click.get_current_context().exit(1)


def _project() -> Path:
    return find_kedro_project(Path.cwd()) or Path.cwd()


def _to_publish(project: Path, name: str | None, env: str | None) -> str | None:
    """The identity of the study whose record is to be made, if there is one to be made.

    Raises:
        InputError: no such study, or no page has room for it.
    """
    if name is None:
        if env is not None:
            raise InputError("--env", env, "is of a study; give its name, too")
        return None
    order = Order(name, env=env)
    read_study(project, order)
    known = recorded(read_pages(project / DOCS))
    if order.identity not in known:
        words = order.command.removeprefix("kedro study ")
        where = f"no page of docs/results has a line <!-- study: {words} -->"
        remedy = f"{where} and one <!-- end --> after it; they have {among(name, known)}"
        raise InputError("study", order.identity, remedy)
    return order.identity


COMMANDS: Mapping[str, click.Command] = {"check": check, "publish": publish, "rerun": rerun}
