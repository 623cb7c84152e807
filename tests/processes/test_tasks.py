"""Tasks on a real Ray cluster of two nodes on this machine."""

import importlib
import os
import time

import pytest

pytest.importorskip("ray", reason="Ray is an extra: requirements-ray.lock")

from m2fdp.core.errors import InputError
from m2fdp.processes.connection import connected
from m2fdp.processes.tasks import OPTION, run_ray_tasks

pytestmark = pytest.mark.full

# Workers import `work` by name, so it lives in a module on their path.
WORK = """
import os, signal, time

def work(task):
    kind, argument = task
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "sleep":
        start = time.time()
        time.sleep(argument)
        return start, time.time()
    if kind == "environment":
        return os.environ.get(argument)
    if kind == "folder":
        return os.getcwd()
    if kind == "raise":
        raise ValueError(argument)
    return os.getpid()
"""


@pytest.fixture
def work(tmp_path, monkeypatch, ray_cluster):
    """The work, in a process that is connected to the cluster."""
    (tmp_path / "ray_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with connected(ray_cluster, OPTION):
        yield importlib.import_module("ray_work").work


def run(work, tasks, workers=None):
    lost: list[int] = []
    environment = {"OMP_NUM_THREADS": "1", "M2FDP_POOL_TEST": "3"}
    return dict(run_ray_tasks(work, tasks, workers, environment, lost.append)), lost


def test_tasks_run_elsewhere_in_this_folder_and_the_dying_one_is_given_up_after_two(work, tmp_path):
    tasks = [("environment", "M2FDP_POOL_TEST"), ("folder", None), ("die", None), ("pid", None)]
    results, lost = run(work, tasks)
    assert lost == [2, 2]
    assert results.pop(3) != os.getpid()
    assert results == {0: "3", 1: str(tmp_path), 2: None}
    assert "M2FDP_POOL_TEST" not in os.environ


def test_no_more_tasks_at_a_time_than_workers(work):
    results, _ = run(work, [("sleep", 0.5)] * 3, workers=1)
    spans = sorted(results.values())
    assert all(end < start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


def test_leaving_early_stops_the_tasks(work):
    start = time.monotonic()
    results = run_ray_tasks(work, [("pid", None), ("sleep", 60), ("sleep", 60)], None, {}, print)
    next(results)
    results.close()
    assert time.monotonic() - start < 50


def test_a_node_that_cannot_do_the_work_ends_in_one_line(work):
    with pytest.raises(InputError, match="a node can't do the work: ValueError: no such module"):
        run(work, [("raise", "no such module")])
