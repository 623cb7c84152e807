"""One cell of a study in a worker process: an MLflow run around a Kedro session.

Only light imports here: a worker imports this module before its number of threads is set.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARENT_TAG = "mlflow.parentRunId"
# Figures take longer than all else around a cell's training, and a study draws its own.
_UNDRAWN = {"figures": False}


@dataclass(frozen=True)
class Job:
    """What a worker needs to know about a cell."""

    project: Path
    env: str | None
    tracking_uri: str
    experiment_id: str
    run_name: str
    tags: dict[str, str]
    runtime_params: dict[str, Any]
    log: Path
    pipelines: tuple[str, ...] = ()  # none = the default


def run_cell(job: Job) -> dict[str, str]:
    """Run the cell; everything it prints goes to its log.

    Returns:
        `run_id` of a finished run, or `reason`, one line, why the cell failed.
    """
    with _output_to(job.log):
        try:
            return {"run_id": _run(job)}
        except (Exception, SystemExit) as error:  # what a pool can't pickle would break it
            with suppress(OSError):  # the log's disk may be what has failed
                traceback.print_exc()
            from m2fdp.pipelines.causes import reason

            return {"reason": reason(error)}


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Everything that the process prints inside the block, C code too, goes to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    streams = (sys.stdout, sys.stderr)
    former = [os.dup(stream.fileno()) for stream in streams]
    with path.open("w", encoding="utf-8") as log:
        for stream in streams:
            os.dup2(log.fileno(), stream.fileno())
    try:
        yield
    finally:
        for stream, descriptor in zip(streams, former, strict=True):
            with suppress(OSError):  # as above: the log is lost, not the cell
                stream.flush()
            os.dup2(descriptor, stream.fileno())
            os.close(descriptor)


def _run(job: Job) -> str:
    import mlflow
    from kedro.framework.session import KedroSession
    from kedro.framework.startup import bootstrap_project

    from m2fdp.pipelines.tracking import PROCESS_TAG, closing_runs, process_tag

    bootstrap_project(job.project)
    mlflow.set_tracking_uri(job.tracking_uri)
    with closing_runs():
        unfinished = _unfinished_run(job)
        run = mlflow.start_run(
            run_id=unfinished,
            experiment_id=job.experiment_id,
            run_name=job.run_name,
            tags=job.tags | {PROCESS_TAG: process_tag()},
        )
        session = KedroSession.create(
            job.project,
            save_on_close=False,
            env=job.env,
            runtime_params=_UNDRAWN | job.runtime_params | {"resume": unfinished is not None},
        )
        with session:
            session.run(pipeline_names=list(job.pipelines) or None)
    return run.info.run_id


def _unfinished_run(job: Job) -> str | None:
    """The run to go on with: begun by this study, cut off, and kept by a checkpoint."""
    if not _begun(job):
        return None
    from kedro.framework.project import settings

    from m2fdp.core.config import parse_config
    from m2fdp.core.errors import InputError
    from m2fdp.pipelines.resuming import find_unfinished

    loader = settings.CONFIG_LOADER_CLASS(
        conf_source=str(job.project / settings.CONF_SOURCE),
        env=job.env,
        runtime_params=job.runtime_params,
        **settings.CONFIG_LOADER_ARGS,
    )
    folder = job.project / loader["catalog"]["checkpoints"]["path"]
    config = parse_config(loader["parameters"])
    try:
        run = find_unfinished(folder, config, job.tracking_uri).run
    except InputError:
        return None
    # A study that is started anew has another parent.
    same_study = run.data.tags.get(PARENT_TAG) == job.tags[PARENT_TAG]
    return run.info.run_id if same_study else None


def _begun(job: Job) -> bool:
    """Whether this study has begun the cell before and not finished it."""
    import mlflow

    filters = (f"tags.`{key}` = '{job.tags[key]}'" for key in (PARENT_TAG, "cell_hash"))
    return bool(
        mlflow.MlflowClient().search_runs(
            [job.experiment_id],
            f"{' and '.join(filters)} and attributes.status != 'FINISHED'",
            max_results=1,
        )
    )
