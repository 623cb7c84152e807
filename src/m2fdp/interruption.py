"""Ctrl-C and SIGTERM as one exception that ends a run in order, and never inside a save."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The process was asked to stop; no `Exception`, so that nothing carries on after it."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(signal.Signals(signum).name)

    @property
    def exit_code(self) -> int:
        """What a shell reports for a process that the signal ended."""
        return 128 + self.signum


def end_in_one_line() -> None:
    """From now on Ctrl-C and SIGTERM end this process at once, with one line and no traceback.

    For a command, from its first moment to its last; blocks of `interruptible` and `deferred`
    have their own ways. Handlers that somebody has set, or a signal that is ignored, stay.
    """
    for signum in SIGNALS:
        if signal.getsignal(signum) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(signum, _end)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside the block Ctrl-C and SIGTERM raise `Interrupted`; an ignored signal stays ignored.

    A library that is interrupted half-way may make an error of its own of it; it leaves the block
    as `Interrupted` all the same.
    """
    raised: list[Interrupted] = []

    def interrupt(signum: int, frame: FrameType | None) -> NoReturn:
        raised.append(Interrupted(signum))
        raise raised[-1]

    with _handling(interrupt):
        try:
            yield
        except Exception:
            if raised:
                raise raised[0] from None
            raise


@contextmanager
def deferred() -> Iterator[None]:
    """Inside the block Ctrl-C and SIGTERM wait; the first takes effect when the block is over."""
    pending: list[int] = []
    try:
        with _handling(lambda signum, frame: pending.append(signum)):
            yield
    finally:
        if pending:
            signal.raise_signal(pending[0])


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    interruption = Interrupted(signum)
    with suppress(Exception):  # what the signal has interrupted may have been a write
        sys.stdout.flush()
    os.write(2, f"Stopped by {interruption}.\n".encode())
    os._exit(interruption.exit_code)


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    # Python runs handlers in the main thread and lets no other set them.
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = [
        signum
        for signum in SIGNALS
        if in_main_thread and signal.getsignal(signum) is not signal.SIG_IGN
    ]
    previous = {signum: signal.signal(signum, handler) for signum in signals}
    try:
        yield
    finally:
        for signum, former in previous.items():
            signal.signal(signum, former)
