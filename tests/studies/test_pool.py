"""The worker pool: order of results, lost workers, clean ends."""

import importlib
import multiprocessing
import os
import signal
import time

import pytest

from m2fdp.studies.worker import run_tasks

# Workers import `work` by name, so it lives in a module on their path.
WORK = """
import os, pathlib, signal, time

def work(task):
    kind, argument = task
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "die_once" and not pathlib.Path(argument).exists():
        pathlib.Path(argument).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "sleep":
        time.sleep(argument)
    if kind == "environment":
        return os.environ.get(argument)
    if kind == "blocked":
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return os.getpid()
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "pool_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("pool_work").work


def run(work, tasks, workers=2, **environment):
    lost: list[int] = []
    return dict(run_tasks(work, tasks, workers, environment, lost.append)), lost


def test_every_task_gives_one_result_from_another_process(work):
    results, lost = run(work, [("pid", None)] * 5)
    assert sorted(results) == [0, 1, 2, 3, 4]
    assert os.getpid() not in results.values()
    assert len(set(results.values())) <= 2
    assert lost == []
    assert multiprocessing.active_children() == []


def test_workers_alone_have_the_environment_and_leave_ctrl_c_to_the_parent(work):
    tasks = [("environment", "M2FDP_POOL_TEST"), ("blocked", None)]
    results, _ = run(work, tasks, M2FDP_POOL_TEST="3")
    assert results == {0: "3", 1: True}
    assert "M2FDP_POOL_TEST" not in os.environ
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_lost_task_is_tried_again_and_costs_no_other_task(work, tmp_path):
    tasks = [("die_once", str(tmp_path / "died")), ("sleep", 1.5), ("pid", None)]
    results, lost = run(work, tasks)
    assert lost == [0]
    assert sorted(results) == [0, 1, 2] and None not in results.values()


def test_a_task_whose_workers_always_die_is_given_up_after_two(work):
    results, lost = run(work, [("die", None), ("pid", None)])
    assert lost == [0, 0]
    assert results[0] is None and results[1] is not None


def test_leaving_early_stops_the_workers(work):
    start = time.monotonic()
    results = run_tasks(work, [("pid", None), ("sleep", 60), ("sleep", 60)], 2, {}, print)
    next(results)
    results.close()
    assert multiprocessing.active_children() == []
    assert time.monotonic() - start < 30
