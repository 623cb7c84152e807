"""Who may write the files of a cell, and what everybody else reads."""

import os
import signal
import subprocess
import sys
from datetime import datetime

import psutil
import pytest

from m2fdp.core.errors import InputError
from m2fdp.pipelines import tracking as locks
from m2fdp.pipelines.tracking import locked, process_tag

# A process that holds the lock until its standard input ends.
HOLDER = """
import sys
from pathlib import Path
from m2fdp.pipelines.tracking import locked
with locked(Path(sys.argv[1]), "cell", "single", "cell=NAME"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock_of(tmp_path):
    """The lock's file."""
    return tmp_path / "06_models" / "single" / ".lock"


@pytest.fixture
def holder(lock_of):
    """A process that holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(lock_of)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        yield process


def take(path):
    return locked(path, "cell", "single", "give this run one of its own with cell=NAME")


def check_refused(path, process, started):
    with pytest.raises(InputError) as refused, take(path):
        pytest.fail("both hold it")
    assert str(refused.value) == (
        f"cell = 'single': {process}, begun {datetime.fromtimestamp(started):%Y-%m-%d %H:%M:%S}, "
        "is running it; wait until it ends, or give this run one of its own with cell=NAME"
    )


def test_the_second_is_told_which_process_holds_the_lock_and_what_to_do(lock_of, holder):
    # All of it: on its own host nothing is said of hosts, and nothing of deleting a living lock.
    started = round(psutil.Process(holder.pid).create_time(), 2)
    check_refused(lock_of, f"process {holder.pid}", started)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_lock_ends_with_its_process_however_that_ends(lock_of, holder, signum):
    holder.send_signal(signum)
    holder.wait()
    with take(lock_of):
        assert lock_of.read_text() == process_tag()


def test_a_lock_ends_with_its_block_and_by_an_error_too(lock_of):
    with pytest.raises(OSError), take(lock_of):
        raise OSError
    with take(lock_of):
        pass
    with take(lock_of), pytest.raises(InputError), take(lock_of):
        pass


def test_a_holder_on_another_host_is_told_as_such(lock_of):
    with take(lock_of):
        lock_of.write_text("elsewhere:12:1700000000.00")
        check_refused(lock_of, "process 12 of another host", 1700000000)


def test_where_files_know_no_locks_a_run_goes_on_and_says_so(lock_of, monkeypatch, caplog):
    def refuse(file, operation):
        raise OSError(locks.errno.ENOLCK, os.strerror(locks.errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with take(lock_of):
        pass
    (record,) = caplog.records
    assert str(lock_of) in record.getMessage() and "can't be locked" in record.getMessage()
