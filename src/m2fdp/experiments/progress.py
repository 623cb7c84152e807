"""How far training is, as a bar in a terminal or a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from m2fdp.formatting import upper_bound
from m2fdp.simulation.training import Listener, RoundRecord


@contextmanager
def items_bar(what: str, console: Console | None = None) -> Iterator[Callable[[int, int], None]]:
    """A function to call with how many items are done and how many there are, which a bar shows.

    The bar is gone when the block ends. Where nobody looks, as in a file, there is none.

    Args:
        what: the items are.
        console: place where it is shown; by default on standard error.
    """
    with _bar(console, TimeRemainingColumn()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress_bar(rounds: int, done: int = 0, console: Console | None = None) -> Iterator[Listener]:
    """A listener for `Experiment.train` that shows rounds, accuracy, epsilon and the time left.

    The bar is gone when the block ends. Where nobody looks, as in a file, there is none.

    Args:
        rounds: number of all rounds; `Experiment.calibrate().affordable_rounds`.
        done: rounds of a run that goes on.
        console: place where it is shown; by default on standard error.
    """
    bar = _bar(console, TextColumn("{task.fields[latest]}"), TimeRemainingColumn())

    def on_round(round_: int, logged: Mapping[str, float], seconds: float) -> None:
        bar.advance(task)

    def on_evaluation(record: RoundRecord) -> None:
        bar.update(task, latest=reached(record))

    with bar:
        task = bar.add_task("training", total=rounds, completed=done, latest="")
        yield Listener(on_round, on_evaluation)


def _bar(console: Console | None, *columns: ProgressColumn) -> Progress:
    """A bar that ends with these columns."""
    console = Console(stderr=True) if console is None else console
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        console=console,
        disable=not (console.is_terminal or console.is_jupyter),
        transient=True,
    )


def reached(record: RoundRecord) -> str:
    """Accuracy and epsilon of an evaluated round, in a few words."""
    accuracy = f"accuracy {record.accuracy:.3f}"
    if math.isnan(record.epsilon):
        return accuracy
    return f"{accuracy}, ε {upper_bound(record.epsilon)}"
