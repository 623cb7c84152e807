import os
import signal
import threading

import pytest

from m2fdp.interruption import Interrupted, deferred, interruptible


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_at_once_and_its_handler_is_restored(signum):
    former = signal.getsignal(signum)
    with pytest.raises(Interrupted) as caught, interruptible():
        os.kill(os.getpid(), signum)
        pytest.fail("the signal did not raise")
    assert caught.value.exit_code == 128 + signum
    assert signal.getsignal(signum) is former


def test_a_deferred_signal_waits_until_the_block_is_over():
    saved = []
    with pytest.raises(Interrupted), interruptible():
        with deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            saved.append("whole")
        saved.append("too far")
    assert saved == ["whole"]


def test_an_error_in_a_deferred_block_does_not_swallow_the_signal():
    with pytest.raises(Interrupted) as caught, interruptible(), deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        raise OSError("disk full")
    assert isinstance(caught.value.__context__, OSError)


def test_an_ignored_signal_stays_ignored():
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, former)


def test_other_threads_run_the_blocks_without_handlers():
    done = []

    def work():
        with interruptible(), deferred():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
