"""Maintainers' commands about published numbers: `kedro results check` and `kedro results publish`.

`m2fdp.cli` adds them to `kedro results` where a project has this folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from kedro.framework.cli.utils import env_option
from kedro.utils import find_kedro_project

from m2fdp.core.errors import InputError, among
from m2fdp.studies.early import read_study
from m2fdp.studies.order import Order
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


@click.command()
@click.argument("name", required=False)
@env_option
def publish(name: str | None, env: str | None) -> None:
    """Make the record of study NAME from its finished runs, then its figures, blocks and the index.

    Without NAME records stay as they are.
    """
    identity = _to_publish(_project(), name, env)
    from tools.publishing import publish as write

    write(_project(), identity)


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


COMMANDS: Mapping[str, click.Command] = {"check": check, "publish": publish}
