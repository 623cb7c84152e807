import os
import signal
import subprocess
import sys
import threading

import pytest

from m2fdp.interruption import Interrupted, deferred, end_in_one_line, interruptible

# A command that stops where mlflow is about to be imported, or where it has done all it should.
COMMAND = """
import atexit, runpy, sys, time

def pause():
    print("there", flush=True)
    time.sleep(60)

class Pause:
    def find_spec(self, name, path=None, target=None):
        if name == "mlflow":
            pause()

moment, sys.argv = sys.argv[1], sys.argv[2:]
if moment == "start":
    sys.meta_path.insert(0, Pause())
else:
    atexit.register(pause)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


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


def interrupted_half_way():
    """As a library whose clean-up is not ready for it."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        raise KeyError("half a container")


def test_what_a_library_makes_of_the_interruption_is_the_interruption_again():
    with pytest.raises(Interrupted) as caught, interruptible():
        interrupted_half_way()
    assert caught.value.signum == signal.SIGTERM
    with pytest.raises(KeyError), interruptible():
        raise KeyError("a bug")


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


@pytest.mark.parametrize(
    ("signum", "moment", "command"),
    [
        (signal.SIGINT, "start", ["kedro", "run"]),
        (signal.SIGTERM, "start", ["kedro", "study", "fig7"]),
        (signal.SIGINT, "start", ["m2fdp"]),
        (signal.SIGINT, "end", ["kedro", "run", "--help"]),
    ],
)
def test_a_command_ends_in_one_line_also_while_it_starts_and_after_its_work(
    project, signum, moment, command
):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", COMMAND, moment, *command], **pipes) as process:
        while process.stdout.readline() not in ("there\n", ""):
            pass
        process.send_signal(signum)
        _, said = process.communicate()
    assert (process.returncode, said) == (128 + signum, f"Stopped by {signum.name}.\n")


def test_who_only_imports_the_projects_settings_keeps_python_s_own_ways(project):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_handlers_that_somebody_has_set_stay():
    with interruptible():
        handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
        end_in_one_line()
        assert handlers == [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
