"""Processes that share work: their parts, their failures, and what becomes of them."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.process import shared_tensor
from m2fdp.processes import workers
from m2fdp.processes.pool import WARNING
from m2fdp.processes.workers import Workers


@pytest.fixture(autouse=True)
def share_at_once(monkeypatch):
    """Nothing so small is worth another process; these tests are about them."""
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 0.0)


@pytest.fixture
def children():
    """A function that tells the child processes that this test has begun: pools of tests before it
    may wait for the garbage collector."""
    before = psutil.Process().children()
    return lambda: [child for child in psutil.Process().children() if child not in before]


def count_and_sign(multiple, done, part):
    assert part.start % multiple == 0 or not part
    for item in part:
        done[item, 0] += 1
        done[item, 1] = os.getpid()


def share(shared, work, done, multiple=1, costs=None, kind="test"):
    costs = np.ones(len(done)) if costs is None else costs
    shared.share(kind, costs, partial(work, done), multiple, fixed=(done,))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0, 100), max_size=40), st.integers(1, 4), st.integers(1, 7), st.booleans()
)
def test_every_item_is_done_once_and_parts_start_at_multiples(costs, count, multiple, even):
    costs = np.ones(len(costs)) if even else np.array(costs)
    done = shared_tensor(max(len(costs), 1), 2, torch.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "_WORTH_SHARING_S", 0.0)
        work = partial(count_and_sign, multiple)
        Workers(count).share("test", costs, partial(work, done), multiple, fixed=(done,))
    assert done[: len(costs), 0].tolist() == [1] * len(costs)
    if even and count > 1 and len(costs) > multiple * count:
        assert len(set(done[: len(costs), 1].tolist())) > 1


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=60), st.integers(1, 5))
def test_parts_cost_about_the_same(costs, count):
    """None is further from its share than the dearest item."""
    costs = np.array(costs)
    parts = workers.even_ranges(costs, count, 1)
    assert [item for part in parts for item in part] == list(range(len(costs)))
    assert all(parts) and len(parts) <= count
    for part in parts:
        assert abs(costs[part.start : part.stop].sum() - costs.sum() / count) <= costs.max() + 1e-9


def test_small_work_is_not_worth_a_process(monkeypatch, children):
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 60.0)
    done, shared = shared_tensor(30, 2, torch.int64), Workers(3)
    for _ in range(3):
        share(shared, partial(count_and_sign, 1), done)
    assert set(done[:, 1].tolist()) == {os.getpid()}
    assert not children()


def test_processes_are_forked_once_and_see_what_is_new(children):
    """And again only for what has to be there from the start."""
    done, shared = shared_tensor(10, 2, torch.int64), Workers(2)
    pids = []
    for value in range(5):
        share(shared, partial(mark, torch.full((3,), value)), done)
        assert done[:, 0].tolist() == [value] * 10
        pids.append(frozenset(done[:, 1].tolist()))
    assert len(set(pids)) == 1 and len(pids[0]) == 2
    other = shared_tensor(10, 2, torch.int64)
    share(shared, partial(mark, torch.full((3,), 7)), other)
    assert other[:, 0].tolist() == [7] * 10
    assert frozenset(other[:, 1].tolist()) != pids[0]
    others = {process.pid for process in children()}
    assert others == set(other[:, 1].tolist()) - {os.getpid()}
    share(shared, partial(mark, torch.full((3,), 8)), done)
    assert set(done[:, 1].tolist()) == {os.getpid(), *others}


def mark(value, done, part):
    done[part.start : part.stop, 0] = value[1]
    done[part.start : part.stop, 1] = os.getpid()


@pytest.mark.parametrize(("shared", "faster"), [(1.0, False), (0.1, True)])
def test_what_was_faster_is_done(monkeypatch, shared, faster):
    """And the other way is tried again now and then; the first call of all counts for little."""
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 1.0)
    ways = workers._Ways()
    chosen = []
    for call in range(60):
        chosen.append(ways.sharing(10.0))
        seconds = 10.0 * (shared if chosen[-1] else 0.5)
        ways.took(chosen[-1], seconds + 100.0 * (call == 0), 10.0)
    assert not chosen[0]
    assert 50 <= chosen[5:].count(faster) <= 53
    # Where the machine is free again, or no longer is, the other way is soon taken.
    for _ in range(60):
        chosen.append(ways.sharing(10.0))
        ways.took(chosen[-1], 10.0 * (1.1 - shared if chosen[-1] else 0.5), 10.0)
    assert chosen[-15:].count(faster) <= 1


def test_what_takes_no_time_is_not_even_tried(monkeypatch):
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 1.0)
    ways = workers._Ways()
    for _ in range(30):
        assert not ways.sharing(10.0)
        ways.took(False, 0.9, 10.0)
    assert ways.sharing(12.0)


def test_an_error_of_a_process_is_raised_in_its_parent_and_leaves_no_process_behind(children):
    done = shared_tensor(9, 1, torch.float32)
    with pytest.raises(ValueError, match="no item"):
        share(Workers(3), refuse_later_parts, done)
    with pytest.raises(KeyboardInterrupt):
        share(Workers(3), partial(interrupt, os.getpid()), done)
    assert not children()


def refuse_later_parts(done, part):
    if part.start > 0:
        raise ValueError(f"no item {part.start}")


def test_what_a_killed_process_left_undone_is_done():
    done, shared = shared_tensor(10, 1, torch.float32), Workers(3)
    share(shared, partial(kill_others, os.getpid()), done)
    assert done.sum() == 10
    share(shared, ones, done.zero_())
    assert done.sum() == 10


def test_a_process_that_was_killed_meanwhile_is_replaced(children):
    done, shared = shared_tensor(10, 1, torch.float32), Workers(3)
    share(shared, ones, done)
    for process in children():
        process.kill()
    for _ in range(2):
        share(shared, ones, done.zero_())
        assert done.sum() == 10
    assert len(children()) == 2


def kill_others(parent, done, part):
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    ones(done, part)


def ones(done, part):
    done[part.start : part.stop] = 1.0


def interrupt(parent, done, part):
    if os.getpid() == parent:
        raise KeyboardInterrupt
    signal.pause()


def test_ctrl_c_is_the_parents_to_handle(children):
    done, shared = shared_tensor(8, 2, torch.int64), Workers(2)
    share(shared, partial(count_and_sign, 1), done)
    (child,) = children()
    child.send_signal(signal.SIGINT)
    share(shared, partial(count_and_sign, 1), done)
    assert children() == [child]
    assert child.pid in done[:, 1].tolist()


def test_nobody_outlives_the_workers(children):
    done, shared = shared_tensor(8, 1, torch.float32), Workers(3)
    share(shared, ones, done)
    assert len(children()) == 2
    shared.end()
    assert not children()
    share(shared, ones, done)
    del shared
    gc.collect()
    assert not children()


_ENDLESS = """
import os, signal, sys, time
import numpy as np, torch
from functools import partial
from m2fdp.processes import workers
workers._WORTH_SHARING_S = 0.0
done = workers.shared_tensor(8, 1, torch.float64)
def sign(done, part):
    done[part.start : part.stop] = os.getpid()
shared = workers.Workers(3)
shared.share("test", np.ones(8), partial(sign, done), fixed=(done,))
others = {int(process) for process in done.unique().tolist()} - {os.getpid()}
print(*others, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["killed", "returns"])
def test_nobody_outlives_the_parent(end):
    command = [sys.executable, "-c", _ENDLESS, end]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    processes = [int(process) for process in printed.split()]
    assert len(processes) == 2
    deadline = time.monotonic() + 20
    while any(map(_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(_alive, processes))


def _alive(process):
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python warns from version 3.12 on")
def test_the_warning_that_is_silenced_is_still_pythons_own():
    """And a run's own forks beside a thread give none."""
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    try:
        with pytest.warns(DeprecationWarning, match=WARNING):
            process = os.fork()
            if process == 0:
                os._exit(0)
        os.waitpid(process, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            share(Workers(2), ones, shared_tensor(4, 1, torch.float32))
    finally:
        waiting.set()
        thread.join()


def test_float32_stays_float32_and_operators_have_one_thread(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    set_exact_arithmetic()
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.get_num_threads() == 1
