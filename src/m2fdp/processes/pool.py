"""Processes that are forked once and then take one piece of work after another.

A fork of a process of 600 MB costs 45 ms of a processor, and as much again for the pages that both
then write to: more than many a round. So a pool keeps its processes. They have what their parent
had when it forked them (`fixed` among it); what is new comes pickled through a pipe, and what they
make goes into shared memory.

Forking beside threads is safe here. From version 3.12 on, `os.fork` warns where the process has
other threads: a lock that one of them holds stays locked for ever in the child. A child here calls
nothing but torch, on one thread (`m2fdp.core.engine.execution`). A run's other threads (a progress
bar's, the tracking client's) never compute with torch. So none can hold a lock that the child
needs.
"""

import io
import os
import pickle
import signal
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from m2fdp.core.engine.process import Work


def packed(value: object, fixed: Sequence[object] = ()) -> bytes:
    """A value as bytes, tensors on the CPU without the rest of the storage that they are views of.

    Args:
        fixed: objects that whoever unpacks it has already; their places are all that is packed.
    """
    file = io.BytesIO()
    _Pickler(file, fixed).dump(value)
    return file.getvalue()


def unpacked(content: bytes, fixed: Sequence[object] = ()) -> Any:
    """What was packed, with the same `fixed`."""
    return _Unpickler(io.BytesIO(content), fixed).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, fixed: Sequence[object]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._places = {id(value): place for place, value in enumerate(fixed)}

    def persistent_id(self, value: Any) -> int | None:
        return self._places.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor:
            return torch.from_numpy, (value.detach().contiguous().numpy(),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, fixed: Sequence[object]) -> None:
        super().__init__(file)
        self._fixed = fixed

    def persistent_load(self, place: int) -> object:
        return self._fixed[place]


# The warning's own words, so that no other one is silenced.
WARNING = r".*is multi-threaded, use of fork\(\) may lead to deadlocks"


class Pool:
    """So many forked processes, which end with this object.

    Attributes:
        fixed: objects that the processes had from the start, and that never change; a piece of
            work that refers to them takes them from there.
    """

    def __init__(self, count: int, fixed: Sequence[object]) -> None:
        self.fixed = tuple(fixed)
        self._members: list[tuple[int, Connection]] = []
        for _ in range(count):
            ours, theirs = Pipe()
            # While anybody holds our end, a process doesn't notice that its parent is gone.
            held = [ours, *(connection for _, connection in self._members)]
            process = fork(partial(_serve, theirs, held, self.fixed))
            theirs.close()
            self._members.append((process, ours))
        self.end = weakref.finalize(self, _end, os.getpid(), self._members)

    def start(self, work: Work, parts: Sequence[range]) -> None:
        """Have each process begin with its part."""
        content = packed(work, self.fixed)
        for (_, connection), part in zip(self._members, parts, strict=False):
            with suppress(OSError):  # it is gone, and `finished` says so
                connection.send((part.start, part.stop))
                connection.send_bytes(content)

    def finished(self, number: int) -> bool:
        """Whether a process did its part, as soon as that is known; if not, it is gone."""
        try:
            self._members[number][1].recv()
        except (EOFError, OSError):
            return False
        return True


def fork(work: Callable[[], None]) -> int:
    """The number of a new process that does the work and ends, with status 0 if it is done."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", WARNING, DeprecationWarning)
        process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return process


def _serve(connection: Connection, held: Sequence[Connection], fixed: Sequence[object]) -> None:
    """Do one piece of work after another until the parent is gone."""
    for of_others in held:
        of_others.close()
    # Ctrl-C reaches every process of a terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):  # the parent asks for no more, or is gone
        while True:
            part = range(*connection.recv())
            unpacked(connection.recv_bytes(), fixed)(part)
            connection.send(True)


def _end(owner: int, members: list[tuple[int, Connection]]) -> None:
    """Only the process that forked them ends them: others may have a copy of the pool."""
    if os.getpid() != owner:
        return
    for process, connection in members:
        connection.close()
        with suppress(ProcessLookupError):  # it has ended already
            os.kill(process, signal.SIGKILL)
    for process, _ in members:
        with suppress(ChildProcessError):  # somebody else has waited for it
            os.waitpid(process, 0)
    members.clear()
