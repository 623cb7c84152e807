"""`kedro study`: the cells of a grid in worker processes, under one MLflow run, then a report."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import mlflow
from kedro.framework.project import settings
from kedro.framework.session import KedroSession
from kedro.utils import find_kedro_project
from mlflow.entities import Run, RunStatus
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from m2fdp.errors import InputError
from m2fdp.pipelines.tracking import PROCESS_TAG, close_stale_runs, process_tag
from m2fdp.simulation.workers import available_cores
from m2fdp.studies.grid import Cell, Study, expand, load_study, varied_keys
from m2fdp.studies.pool import run_tasks
from m2fdp.studies.ray_pool import connected, run_ray_tasks
from m2fdp.studies.report import print_report, write_report
from m2fdp.studies.worker import Job, run_cell

LOST = "its worker process died twice; is there enough memory? (--workers=1 needs least)"


def study(
    name: str,
    *,
    resume: bool,
    workers: int | None,
    ray_address: str | None,
    env: str | None,
    params: dict[str, Any],
) -> None:
    """Run a study's cells and report on them.

    Args:
        name: of the study's file.
        resume: skip the cells that have a finished run of the same configuration.
        workers: how many processes at most; None = one a core.
        ray_address: of the Ray cluster that runs the cells; None = processes of this machine.
        env: the Kedro environment; None = the study's own, or Kedro's default.
        params: nested parameters that override those that all cells share.

    Raises:
        InputError: a study that can't be run; nothing has been started then.
        click.exceptions.Exit: with code 1, after the report, where cells failed.
    """
    project = find_kedro_project(Path.cwd()) or Path.cwd()
    conf = project / settings.CONF_SOURCE
    plan = load_study(conf, name, env or settings.CONFIG_LOADER_ARGS["default_run_env"])
    env = env or plan.env
    with KedroSession.create(project, save_on_close=False, env=env) as session:
        # Checks the environment and points MLflow at the project's store.
        base = session.load_context().config_loader["parameters"]
    cells = expand(name, plan, base, params)
    if ray_address is not None:
        click.get_current_context().with_resource(connected(ray_address))
    close_stale_runs()
    parent = _open_parent(name, plan, resume)
    run_ids = _finished_runs(name, cells) if resume else {}
    if run_ids:
        click.echo(f"{len(run_ids)} of {len(cells)} cells are finished already.")
        _tag_again(cells, run_ids)
    waiting = [cell for cell in cells if cell.name not in run_ids]
    folder = project / "data" / "08_reporting" / name
    failed = 0
    outcomes = _run_cells(
        name, project, env, parent, waiting, workers, ray_address is not None, folder
    )
    with _progress(len(waiting)) as done, closing(outcomes):
        for cell, outcome in outcomes:
            if "run_id" in outcome:
                run_ids[cell.name] = outcome["run_id"]
                done(f"{cell.name}: finished")
            else:
                failed += 1
                done(f"{cell.name}: FAILED, {outcome['reason']} (log: {_log(folder, cell)})")
    if run_ids:
        ordered = [run_ids[cell.name] for cell in cells if cell.name in run_ids]
        print_report(plan.title, write_report(folder, ordered, varied_keys(plan)))
    click.echo("Every run in detail: make ui")
    if failed:
        click.echo(f"{failed} of {len(cells)} cells failed; --resume runs only them.", err=True)
        click.get_current_context().exit(1)


def _open_parent(name: str, plan: Study, resume: bool) -> Run:
    """The MLflow run that the cells' runs are filed under; resumed, the study's latest one."""
    of_study = f"tags.study = '{name}' and tags.role = 'study'"
    # Stale runs are closed, so what still runs on this host is alive.
    here = f"attributes.status = 'RUNNING' and tags.{PROCESS_TAG} LIKE '{socket.gethostname()}:%'"
    if _search(f"{of_study} and {here}"):
        raise InputError("study", name, "is running in another process; wait until it is done")
    earlier = _search(of_study) if resume else []
    return mlflow.start_run(
        run_id=earlier[0].info.run_id if earlier else None,
        run_name=name,
        tags={
            "study": name,
            "role": "study",
            PROCESS_TAG: process_tag(),
            "mlflow.note.content": plan.title,
        },
    )


def _finished_runs(name: str, cells: tuple[Cell, ...]) -> dict[str, str]:
    """The latest finished run of each cell that has one, by the cell's name."""
    finished: dict[str, str] = {}
    for run in _search(f"tags.study = '{name}' and attributes.status = 'FINISHED'"):
        if "cell_hash" in run.data.tags:
            finished.setdefault(run.data.tags["cell_hash"], run.info.run_id)
    return {cell.name: finished[cell.hash] for cell in cells if cell.hash in finished}


def _tag_again(cells: tuple[Cell, ...], run_ids: dict[str, str]) -> None:
    """An arm may have had another name in the file when its run was made."""
    client = mlflow.MlflowClient()
    for cell in cells:
        if cell.name in run_ids:
            for tag, value in cell.tags.items():
                client.set_tag(run_ids[cell.name], tag, value)


def _search(filter_string: str) -> list[Run]:
    """Runs of the project's experiment, the latest first."""
    return mlflow.search_runs(
        filter_string=filter_string,
        order_by=["attributes.start_time DESC"],
        output_format="list",
    )


def _run_cells(
    name: str,
    project: Path,
    env: str | None,
    parent: Run,
    cells: list[Cell],
    workers: int | None,
    on_ray: bool,
    folder: Path,
) -> Iterator[tuple[Cell, dict[str, str]]]:
    """Run the cells in processes that share the cores, here or on Ray; yields their outcomes."""
    if on_ray:
        threads = 1
        run = run_ray_tasks
    else:
        cores = available_cores()
        workers = max(1, min(workers or cores, len(cells)))
        threads = max(1, cores // workers)
        run = run_tasks
    jobs = [
        Job(
            project=project,
            env=env,
            tracking_uri=mlflow.get_tracking_uri(),
            experiment_id=parent.info.experiment_id,
            run_name=cell.name,
            tags={
                "mlflow.parentRunId": parent.info.run_id,
                "study": name,
                **cell.tags,
            },
            runtime_params={"threads": threads} | cell.overrides,
            log=_log(folder, cell),
        )
        for cell in cells
    ]
    environment = {"OMP_NUM_THREADS": str(threads)}

    def on_loss(index: int) -> None:
        _close_runs(parent, f"tags.cell_hash = '{cells[index].hash}'")

    try:
        with closing(run(run_cell, jobs, workers, environment, on_loss)) as outcomes:
            for index, outcome in outcomes:
                yield cells[index], outcome or {"reason": LOST}
    finally:
        _close_runs(parent)


def _close_runs(parent: Run, *filters: str) -> None:
    """Mark as KILLED the cells' runs that no worker, here or on another host, goes on with."""
    of_study = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    for run in _search(" and ".join(("attributes.status = 'RUNNING'", of_study, *filters))):
        mlflow.MlflowClient().set_terminated(run.info.run_id, RunStatus.to_string(RunStatus.KILLED))


def _log(folder: Path, cell: Cell) -> Path:
    return folder / "logs" / f"{cell.name}.log"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar over the cells on a terminal, else a numbered line for each."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if not console.is_terminal:
        lines = iter(range(1, total + 1))
        yield lambda line: click.echo(f"[{next(lines)}/{total}] {line}")
        return
    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("cells", total=total)

        def done(line: str) -> None:
            console.print(line)
            bar.advance(task)

        yield done
