"""How far work is: a bar in a terminal or a notebook, lines elsewhere."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from m2fdp.core.engine.training import Listener, RoundRecord
from m2fdp.core.formatting import duration, upper_bound
from m2fdp.core.metrics import leading

SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def telling(
    tell: Callable[[str], object], line: Callable[[float], str], first_after_s: float | None = None
) -> Iterator[None]:
    """While the block runs, a line every 30 seconds.

    Args:
        tell: takes the line, in a thread of its own.
        line: makes it of the seconds since the block began.
        first_after_s: when the first line is due, if not after as many seconds as the others; a
            block that ends before is silent.
    """
    began, over = time.monotonic(), threading.Event()

    def tell_all() -> None:
        pause = SECONDS_BETWEEN_LINES if first_after_s is None else first_after_s
        while not over.wait(pause):
            tell(line(time.monotonic() - began))
            pause = SECONDS_BETWEEN_LINES

    thread = threading.Thread(target=tell_all, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def so_far(what: str, seconds: float, done: int = 0, total: int = 0) -> str:
    """A line on work that has gone on for some seconds; what is left is told once some is done."""
    if not done:
        return f"{what}: {duration(seconds)} so far"
    left = duration(seconds / done * (total - done))
    return f"{what}: {done:,} of {total:,}, about {left} left"


@contextmanager
def items_bar(
    what: str, console: Console | None = None, tell: Callable[[str], object] | None = None
) -> Iterator[Callable[[int, int], None]]:
    """A function to call with how many items are done and how many there are, which a bar shows.

    Args:
        tell: takes a line every 30 seconds where there is no bar.
    """
    bar, counts = _bar(console, TimeRemainingColumn()), (0, 0)

    def show(done: int, total: int) -> None:
        nonlocal counts
        counts = done, total
        bar.update(task, completed=done, total=total)

    lines: AbstractContextManager[None] = nullcontext()
    if tell is not None and bar.disable:
        lines = telling(tell, lambda seconds: so_far(what, seconds, *counts))
    with bar, lines:
        task = bar.add_task(what, total=None)
        yield show


@contextmanager
def progress_bar(
    rounds: int,
    done: int = 0,
    console: Console | None = None,
    tell: Callable[[str], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Listener]:
    """A listener for `Experiment.train` that shows rounds, accuracy, epsilon and the time left.

    Args:
        rounds: number of all rounds; `Experiment.calibrate().affordable_rounds`.
        done: rounds of a run that goes on.
        tell: takes a line every 30 seconds of the clock where there is no bar.
    """
    bar = _bar(console, TextColumn("{task.fields[latest]}"), TimeRemainingColumn())
    told = began = clock()
    latest = ""

    def on_round(round_: int, logged: Mapping[str, float], seconds: float) -> None:
        nonlocal told
        bar.advance(task)
        if tell is not None and bar.disable and clock() - told >= SECONDS_BETWEEN_LINES:
            told = clock()
            left = duration((told - began) / (round_ - done) * (rounds - round_))
            tell(f"Round {round_} of {rounds}{latest}, about {left} left")

    def on_evaluation(record: RoundRecord) -> None:
        nonlocal latest
        measure = leading(row := record.row)
        reached = f"{measure.words} {row[measure.name]:.3f}"
        if not math.isnan(record.epsilon):
            reached += f", ε {upper_bound(record.epsilon)}"
        latest = f", {reached}"
        bar.update(task, latest=reached)

    with bar:
        task = bar.add_task("training", total=rounds, completed=done, latest="")
        yield Listener(on_round, on_evaluation)


def _bar(console: Console | None, *columns: ProgressColumn) -> Progress:
    """A bar that ends with these columns, and is gone with its block; none where nobody looks."""
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
