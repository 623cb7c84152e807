"""Forked processes: their parts, their failures, and what becomes of them."""

import os
import signal
import sys
import threading
import warnings

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.simulation import workers
from m2fdp.simulation.forking import WARNING
from m2fdp.simulation.workers import Workers, shared_tensor


@pytest.fixture(autouse=True)
def fork_at_once(monkeypatch):
    """Forking is worth it for nothing so small; these tests are about forks."""
    monkeypatch.setattr(workers, "_WORTH_FORKING_S", 0.0)


@given(st.integers(0, 40), st.integers(1, 4), st.integers(1, 7))
def test_every_item_is_done_once_and_parts_start_at_multiples(items, count, multiple):
    done = shared_tensor(max(items, 1), 2, torch.int64)

    def work(part):
        assert part.start % multiple == 0 or not part
        for item in part:
            done[item, 0] += 1
            done[item, 1] = os.getpid()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "_WORTH_FORKING_S", 0.0)
        Workers(count).share("test", items, work, multiple)
    assert done[:items, 0].tolist() == [1] * items
    if count > 1 and items > multiple:
        assert len(set(done[:items, 1].tolist())) > 1


def test_small_work_is_not_worth_a_process(monkeypatch):
    monkeypatch.setattr(workers, "_WORTH_FORKING_S", 60.0)
    processes = set()
    shared = Workers(3)
    for _ in range(3):
        shared.share("test", 30, lambda part: processes.add(os.getpid()))
    assert processes == {os.getpid()}


def test_an_error_of_a_process_is_raised_in_its_parent():
    def work(part):
        if part.start > 0:
            raise ValueError(f"no item {part.start}")

    with pytest.raises(ValueError, match="no item 5"):
        Workers(2).share("test", 10, work)
    assert not psutil.Process().children()


def test_what_a_killed_process_left_undone_is_done():
    parent, done = os.getpid(), shared_tensor(10, 1, torch.float32)

    def work(part):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        done[part.start : part.stop] = 1.0

    Workers(3).share("test", 10, work)
    assert done.sum() == 10


def test_an_interrupt_leaves_no_process_behind():
    parent = os.getpid()

    def work(part):
        if os.getpid() == parent:
            raise KeyboardInterrupt
        signal.pause()

    with pytest.raises(KeyboardInterrupt):
        Workers(3).share("test", 9, work)
    assert not psutil.Process().children()


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
            Workers(2).share("test", 4, lambda part: None)
    finally:
        waiting.set()
        thread.join()
