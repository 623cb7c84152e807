"""The process that knows Great Expectations: asked now, heard when its verdict is due.

To load the library takes seconds, so nobody waits for that before there is a question.
"""

import atexit
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

PROGRAM = Path(__file__).with_name("rules.py")
PASSED = ".passed"  # of the record that a split need not be checked again, beside the page
_REMEMBERED = 64  # verdicts


class UncheckedError(Exception):
    """Nobody knows whether a split keeps its rules."""


class Verdict(NamedTuple):
    """The rules that are broken, and the page of all checks."""

    broken: tuple[str, ...]
    page: str


class Checker:
    """A process of `rules.py`, from the first question on; it ends with this one, however that
    ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: set[str] = set()
        self._verdicts: dict[str, Verdict] = {}  # by digest, the latest last

    def start(self) -> None:
        """Let it load while others work."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            # By its file, and without its folder on the path: it imports nothing of the project.
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is the parent's to handle
        )
        atexit.register(self.stop)

    def stop(self) -> None:
        """End it at once; what it was asked is forgotten."""
        process, self._process = self._process, None
        self._asked.clear()
        if process is not None:
            process.kill()
            process.communicate()
        atexit.unregister(self.stop)

    def ask(self, digest: str, case: Mapping[str, Any]) -> None:
        """Have a case checked that is not known, nor asked already."""
        if digest not in self._verdicts and digest not in self._asked:
            self.start()
            self._send(digest, case)
            self._asked.add(digest)

    def verdict(self, digest: str) -> Verdict:
        """On what was asked; waits for it.

        Raises:
            UncheckedError: the process has died, or could not check it.
        """
        while digest not in self._verdicts:
            if self._process is None or digest not in self._asked:
                raise UncheckedError("The split has not been checked.")
            assert self._process.stdout is not None
            try:
                answered, verdict, error = pickle.load(self._process.stdout)
            except (EOFError, pickle.UnpicklingError):
                self._fail()
            self._asked.discard(answered)
            if error is not None:
                raise UncheckedError(f"Great Expectations can't check the split: {error}.")
            self._verdicts[answered] = Verdict(*verdict)
            if len(self._verdicts) > _REMEMBERED:
                del self._verdicts[next(iter(self._verdicts))]
        return self._verdicts[digest]

    def _send(self, digest: str, case: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            # Within its tuple a string of bytes, so that nobody has to know pandas to receive it.
            pickle.dump((digest, pickle.dumps(case)), self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def _fail(self) -> NoReturn:
        """It has died; the next question has another one."""
        assert self._process is not None
        code = self._process.wait()
        self.stop()
        problem = f"The process that checks the split has died (exit code {code})"
        raise UncheckedError(f"{problem}; is there enough memory?")


# What a process has loaded and learnt serves all its runs.
CHECKER = Checker()
_pending: list[Callable[[], None]] | None = None


@contextmanager
def beside() -> Iterator[None]:
    """Inside the block work goes on while a split is checked, up to the next `settle`; what nobody
    has settled at its end is forgotten."""
    global _pending  # as MLflow's active run, it is a matter of the process
    _pending = []
    try:
        yield
    finally:
        _pending = None


def conclude(wait: Callable[[], None]) -> None:
    """Call it now, or at the next `settle` of a block of `beside`."""
    if _pending is None:
        wait()
    else:
        _pending.append(wait)


def settle() -> None:
    """Wait for the verdicts that are due, before anything is written that rests on them."""
    while _pending:
        _pending[0]()
        del _pending[0]
