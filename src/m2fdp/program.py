"""The command `m2fdp`: a tree of real nodes, and `data`, by which a table gets in."""

import json
from pathlib import Path

import click
import pandas as pd

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing
from m2fdp.deployment.commands import main
from m2fdp.given.own_code import root


def _project() -> Path:
    """The project's root, in which environments and models lie."""
    if not (root() / "pyproject.toml").is_file():
        remedy = "is in no project of m2fdp; start from the project's folder or one below it"
        raise InputError("folder", str(Path.cwd()), remedy)
    return root()


@main.command()
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--json", "in_json", is_flag=True, help="All that is known, as JSON.")
def status(folders: tuple[Path, ...], in_json: bool) -> None:
    """How nodes are, by their state: each of FOLDERS is a node's, or has several.

    Exit code 1 says that a node does not run, though its run is not over, or that something of it
    is overdue.
    """
    from m2fdp.deployment.status import statuses
    from m2fdp.reporting.nodes import print_statuses

    found = [each for folder in folders for each in statuses(folder)]
    if in_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        print_statuses(found)
    if any(not each["ended"] and (each["overdue"] or not each["runs"]) for each in found):
        click.get_current_context().exit(1)


@main.group()
def data() -> None:
    """Data of your own."""


@data.command()
@click.argument("file")
@click.option("--label", metavar="COLUMN", help="The column to be learnt.")
@click.option("--client", metavar="COLUMN", help="The column whose values are the devices.")
@click.option(
    "--group",
    "groups",
    metavar="COLUMN",
    multiple=True,
    help="A column of servers above the devices. Given again, of the tier above.",
)
@click.option(
    "--record",
    metavar="COLUMN",
    help="The column that names persons, if one may have several rows.",
)
@click.option("--env", metavar="NAME", help="What the environment is called; by default as FILE.")
def describe(
    file: str,
    label: str | None,
    client: str | None,
    groups: tuple[str, ...],
    record: str | None,
    env: str | None,
) -> None:
    """Read a table, say what is in it, and write an environment to run on it.

    FILE is a table, a folder of tables or pictures, catalog:ENTRY or hf:NAME.
    """
    from m2fdp.reporting.described import print_columns, save_labels
    from m2fdp.tables.describe import describe as look_at
    from m2fdp.tables.environment import write_environment
    from m2fdp.tables.frames import CATALOG

    project = _project()
    if file.startswith(CATALOG):
        from kedro.framework.session import KedroSession
        from kedro.framework.startup import bootstrap_project

        bootstrap_project(project)
        session = KedroSession.create(project, save_on_close=False)
        with session:
            _ = session.load_context().catalog  # hooks.py hands it over
    described = look_at(file, label, client, groups, record)
    name = env or Path(file.rpartition(":")[2]).stem
    written = write_environment(project / "conf" / name, file, described, project)
    print_columns(described)
    written.append(save_labels(described, project / "conf" / name))
    for path in written:
        click.echo(f"wrote {path.relative_to(project)}")
    click.echo(f"Confirm what {written[1].relative_to(project)} says, then: kedro run --env={name}")


@main.command()
@click.argument("run")
@click.argument("file")
@click.option("-o", "out", type=click.Path(path_type=Path), help="A CSV file for the answers.")
def predict(run: str, file: str, out: Path | None) -> None:
    """Have the model of RUN label the rows of FILE, a table or a folder of pictures.

    RUN is a cell, such as `single`, or the id of a run in MLflow.
    """
    from m2fdp.pipelines.logged_models import load
    from m2fdp.tables.frames import folder_of, read_parts

    model = load(_project(), run)
    beside = {"folder": str(folder_of(file))}
    parts = read_parts("FILE", file)
    answers = pd.concat([pd.DataFrame(model.predict(part, beside)) for part in parts])
    text = answers.to_csv(index=False, float_format="%.6g")
    if out is None:
        click.echo(text, nl=False)
    else:
        with replacing(out) as path:
            path.write_text(text, encoding="utf-8")
        click.echo(f"wrote {out}: {len(answers):,} rows")
