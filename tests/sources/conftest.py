"""What commands change of a process is undone."""

import signal

import pytest

from m2fdp.interruption import SIGNALS


@pytest.fixture(autouse=True)
def signals_as_before():
    """The program `m2fdp` has its own ways with signals, from its first moment on."""
    before = [signal.getsignal(signum) for signum in SIGNALS]
    yield
    for signum, handler in zip(SIGNALS, before, strict=True):
        signal.signal(signum, handler)
