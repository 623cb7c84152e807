"""Progress in the terminal and metrics in MLflow while training goes on."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import mlflow
from mlflow.entities import Metric
from rich.console import Console

from m2fdp.core.engine.training import Listener, Progress, RoundRecord
from m2fdp.core.formatting import duration
from m2fdp.core.metrics import WALL
from m2fdp.pipelines.outbox import Outbox
from m2fdp.progress import SECONDS_BETWEEN_LINES, progress_bar, reached

# One commit a point is far slower than one a batch, and nobody looks more often than this.
_SECONDS_BETWEEN_WRITES = 2.0

logger = logging.getLogger(__name__)


@contextmanager
def tracked_progress(
    rounds: int,
    start: Progress | None,
    outbox: Outbox,
    clock: Callable[[], float] = time.monotonic,
    group: str = "control",
) -> Iterator[Listener]:
    """A listener that shows how far training is, and logs metrics in batches.

    In a terminal that is a progress bar, elsewhere a line every 30 seconds of the clock.
    Metrics go to the outbox from the first evaluation on, so that the run's page in MLflow begins
    with the accuracy; what has been measured goes there even when training is interrupted. A run
    that goes on from `start` may have logged less than was kept of it, or more: each of its
    metrics gets each round once.

    Args:
        outbox: of MLflow's run.
        group: what is decided of rounds is logged below.
    """
    console = Console(stderr=True)
    logged = frozenset() if start is None else _logged(outbox.run_id)
    written = printed = began = clock()
    done = 0 if start is None else start.state.round
    latest = ""
    evaluated = start is not None

    def flush() -> None:
        nonlocal written
        outbox.take_up()
        written = clock()

    def log(name: str, value: float, round_: int) -> None:
        if (name, round_) not in logged:
            outbox.leave([Metric(name, value, int(time.time() * 1000), round_)])

    def log_evaluation(record: RoundRecord) -> None:
        values = record.row
        round_ = values.pop("round")
        for name, value in values.items():
            if math.isfinite(value):
                log(name, value, round_)

    def log_decisions(decisions: Mapping[str, float], round_: int) -> None:
        for name, value in decisions.items():
            log(f"{group}/{name}", value, round_)

    def print_line(round_: int) -> None:
        nonlocal printed
        if console.is_terminal or console.is_jupyter or clock() - printed < SECONDS_BETWEEN_LINES:
            return
        printed = clock()
        remaining = duration((printed - began) / (round_ - done) * (rounds - round_))
        logger.info("Round %d of %d%s, about %s left", round_, rounds, latest, remaining)

    def on_round(round_: int, decisions: Mapping[str, float], seconds: float) -> None:
        bar.on_round(round_, decisions, seconds)
        print_line(round_)
        log(WALL.name, seconds, round_)
        log_decisions(decisions, round_)
        if evaluated and clock() - written > _SECONDS_BETWEEN_WRITES:
            flush()

    def on_evaluation(record: RoundRecord) -> None:
        nonlocal latest, evaluated
        latest = f", {reached(record)}"
        bar.on_evaluation(record)
        log_evaluation(record)
        if not evaluated:
            evaluated = True
            flush()

    with progress_bar(rounds, done, console) as bar:
        if start is not None:
            for record in start.records:
                log_evaluation(record)
            for round_, decisions in enumerate(start.decisions, start=1):
                log_decisions(decisions, round_)
        try:
            yield Listener(on_round, on_evaluation)
        finally:
            flush()


def _logged(run_id: str) -> frozenset[tuple[str, int]]:
    """The metrics of a run by name and step."""
    client = mlflow.MlflowClient()
    return frozenset(
        (name, metric.step)
        for name in client.get_run(run_id).data.metrics
        for metric in client.get_metric_history(run_id, name)
    )
