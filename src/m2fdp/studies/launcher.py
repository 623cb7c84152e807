"""The processes that run a study's cells, each as an MLflow run below the study's own."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import mlflow
from mlflow.entities import Run, RunStatus
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from m2fdp.core.engine.execution import available_cores
from m2fdp.core.formatting import duration
from m2fdp.processes.connection import cores_of_cluster
from m2fdp.processes.tasks import run_ray_tasks
from m2fdp.progress import telling
from m2fdp.studies.grid import Cell
from m2fdp.studies.worker import PARENT_TAG, Job, run_cell, run_tasks

LOST = "its worker process died twice; is there enough memory? (--workers=1 needs least)"


@dataclass(frozen=True)
class Launcher:
    """Runs the cells of a study in worker processes, or finds their finished runs."""

    project: Path
    env: str | None  # the Kedro environment
    study: str
    parent: Run  # MLflow's run of the study
    workers: int | None = None  # processes at most; None = one a core
    on_ray: bool = False
    resume: bool = True  # skip what is finished
    only_finished: bool = False  # run nothing

    @property
    def folder(self) -> Path:
        """Where the study's own files go."""
        return self.project / "data" / "08_reporting" / self.study

    def run(
        self, what: str, cells: Sequence[Cell], tags: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Run cells, those of one configuration once; returns MLflow's ids of the finished runs by
        the cells' hashes. Failures are printed."""
        by_hash: dict[str, Cell] = {}
        for cell in cells:
            by_hash.setdefault(cell.hash, cell)
        run_ids: dict[str, str] = {}
        finished = f"tags.study = '{self.study}' and attributes.status = 'FINISHED'"
        for run in search_runs(finished) if self.resume or self.only_finished else []:
            if (cell_hash := run.data.tags.get("cell_hash")) in by_hash:
                run_ids.setdefault(cell_hash, run.info.run_id)
        if self.only_finished:
            return run_ids
        if run_ids:
            click.echo(f"{len(run_ids)} of {len(by_hash)} {what} are finished already.")
        for cell_hash, run_id in run_ids.items():
            # An arm may have had another name in the file when its run was made.
            for tag, value in by_hash[cell_hash].tags.items():
                mlflow.MlflowClient().set_tag(run_id, tag, value)
        waiting = [cell for cell in by_hash.values() if cell.hash not in run_ids]
        outcomes = self._outcomes(waiting, tags or {})
        at_once = min(self.workers or available_cores(), len(waiting))
        with _progress(what, len(waiting), at_once) as done, closing(outcomes):
            for cell, outcome in outcomes:
                if "run_id" in outcome:
                    run_ids[cell.hash] = outcome["run_id"]
                    done(f"{cell.name}: finished")
                else:
                    log = self._log(cell)
                    done(f"{cell.name}: FAILED, {outcome['reason']} (log: {log})")
        return run_ids

    def _outcomes(
        self, cells: Sequence[Cell], tags: Mapping[str, str]
    ) -> Generator[tuple[Cell, dict[str, str]], None, None]:
        """Run the cells in processes that share the cores, here or on Ray."""
        workers, threads = self.workers, 1
        run: Callable[..., Generator[tuple[int, Any], None, None]] = run_tasks
        if self.on_ray:
            run = partial(run_ray_tasks, cores=self._cores(cells))
        else:
            cores = available_cores()
            workers = max(1, min(workers or cores, len(cells)))
            threads = max(1, cores // workers)
        of_study = {PARENT_TAG: self.parent.info.run_id, "study": self.study}
        jobs = [
            Job(
                project=self.project,
                env=self.env,
                tracking_uri=mlflow.get_tracking_uri(),
                experiment_id=self.parent.info.experiment_id,
                run_name=f"{cell.name}-{cell.hash[:8]}",
                tags=of_study | {**tags, **cell.tags},
                runtime_params={"threads": threads} | cell.overrides,
                log=self._log(cell),
                pipelines=cell.pipelines,
            )
            for cell in cells
        ]
        environment = {"OMP_NUM_THREADS": str(threads)}

        def on_loss(index: int) -> None:
            click.echo(f"{cells[index].name}: its worker process died and is replaced")
            self._close_runs(f"tags.cell_hash = '{cells[index].hash}'")

        try:
            with closing(run(run_cell, jobs, workers, environment, on_loss)) as outcomes:
                for index, outcome in outcomes:
                    yield cells[index], outcome or {"reason": LOST}
        finally:
            self._close_runs()

    def _cores(self, cells: Sequence[Cell]) -> int:
        """How many cores of the cluster each cell takes: its own, and those of its rounds."""
        asked = [cell.config.execution for cell in cells]
        if not any(execution.engine == "ray" for execution in asked):
            return 1
        equal_part = cores_of_cluster() // (self.workers or 1) - 1
        return 1 + max(1, *(execution.workers or equal_part for execution in asked))

    def _close_runs(self, *filters: str) -> None:
        """Mark as KILLED the cells' runs that no worker, here or on another host, goes on with."""
        of_study = f"tags.`{PARENT_TAG}` = '{self.parent.info.run_id}'"
        for run in search_runs(" and ".join(("attributes.status = 'RUNNING'", of_study, *filters))):
            status = RunStatus.to_string(RunStatus.KILLED)
            mlflow.MlflowClient().set_terminated(run.info.run_id, status)

    def _log(self, cell: Cell) -> Path:
        return self.folder / "logs" / f"{cell.name}.log"


def search_runs(filter_string: str) -> list[Run]:
    """Runs of the project's experiment, the latest first."""
    return mlflow.search_runs(
        filter_string=filter_string, order_by=["attributes.start_time DESC"], output_format="list"
    )


def how_far(what: str, done: int, total: int, at_once: int, seconds: float) -> str:
    """A line on cells that run, at most so many at once, after some seconds."""
    running = min(at_once, total - done)
    line = f"{done} of {total} {what} done, {running} running, {total - done - running} waiting"
    if done:
        line += f"; about {duration(seconds / done * (total - done))} left"
    return line


@contextmanager
def _progress(what: str, total: int, at_once: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, else a numbered line for each, and one on all every 30 seconds."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if not console.is_terminal:
        finished = [0]

        def tell(line: str) -> None:
            finished[0] += 1
            click.echo(f"[{finished[0]}/{total}] {line}")

        with telling(click.echo, lambda s: how_far(what, finished[0], total, at_once, s)):
            yield tell
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console) as bar:
        task = bar.add_task(what, total=total)

        def done(line: str) -> None:
            console.print(line)
            bar.advance(task)

        yield done
