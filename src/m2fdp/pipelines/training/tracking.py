"""Progress in the terminal and metrics in MLflow while training goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import mlflow
from mlflow.entities import Metric
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from m2fdp.reporting.style import upper_bound
from m2fdp.simulation.training import Observer, RoundRecord

# One commit a point is far slower than one a batch, and nobody looks more often than this.
_SECONDS_BETWEEN_WRITES = 2.0


@contextmanager
def tracked_progress(rounds: int) -> Iterator[Observer]:
    """An observer that draws a progress bar (only in a terminal) and logs metrics in batches.

    Metrics go to the active MLflow run, if there is one; what has been measured is written
    even when training is interrupted.
    """
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[latest]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    run = mlflow.active_run()
    buffer: list[Metric] = []
    written = time.monotonic()

    def flush() -> None:
        nonlocal written
        if run is not None and buffer:
            mlflow.MlflowClient().log_batch(run.info.run_id, metrics=buffer)
        buffer.clear()
        written = time.monotonic()

    def on_round(round_: int, seconds: float) -> None:
        progress.advance(task)
        buffer.append(_metric("time/round", seconds, round_))
        if time.monotonic() - written > _SECONDS_BETWEEN_WRITES:
            flush()

    def on_evaluation(record: RoundRecord) -> None:
        latest = f"accuracy {record.accuracy:.3f}"
        if not math.isnan(record.epsilon):
            latest += f"  ε {upper_bound(record.epsilon)}"
        progress.update(task, latest=latest)
        values = asdict(record)
        round_ = values.pop("round")
        buffer.extend(
            _metric(name, value, round_) for name, value in values.items() if math.isfinite(value)
        )

    with progress:
        task = progress.add_task("training", total=rounds, latest="")
        try:
            yield Observer(on_round, on_evaluation)
        finally:
            flush()


def _metric(name: str, value: float, step: int) -> Metric:
    return Metric(name, value, int(time.time() * 1000), step)
