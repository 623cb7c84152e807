"""One run's rounds on a real Ray cluster of two nodes on this machine."""

import logging
from collections.abc import Iterator

import pytest
from tests.builders import experiment_of
from tests.core.engine.cut_systems import SYSTEMS, build_system

pytest.importorskip("ray", reason="Ray is an extra: requirements-ray.lock")

from ray.cluster_utils import Cluster

from m2fdp.core.engine.process import SitesLostError
from m2fdp.core.engine.tree_process import build_process
from m2fdp.core.errors import InputError
from m2fdp.processes.config import ExecutionConfig
from m2fdp.processes.sites import sites_of

pytestmark = pytest.mark.full

NODE = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}


@pytest.fixture
def cluster(monkeypatch) -> Iterator[Cluster]:
    """A cluster of two nodes that a test may take apart."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    yield cluster
    cluster.shutdown()


def on(address, workers=None):
    return sites_of(ExecutionConfig(engine="ray", address=address, workers=workers), cores=2)


def trained(process, plans, between=lambda number: None):
    """The bytes of the model after all rounds."""
    state = process.start()
    for number, plan in enumerate(plans):
        between(number)
        state = process.round(state, plan)
    return state.weights.numpy().tobytes()


def test_equal_bytes_on_one_core_and_on_two_nodes(ray_cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiments = {name: build_system(name) for name in SYSTEMS}
    for workers in (1, 2):
        with on(ray_cluster, workers) as sites:
            for name, experiment in experiments.items():
                simulation, plans = experiment.simulation(), experiment.run_plan.rounds
                expected = trained(build_process(simulation), plans)
                assert trained(build_process(simulation, sites=sites), plans) == expected, name


def test_what_a_lost_node_computed_is_computed_by_those_that_are_left(cluster, caplog):
    second = cluster.add_node(**NODE)
    experiment = experiment_of({"training.rounds": 6, "topology.fanouts": [20, 3]})
    simulation, plans = experiment.simulation(), experiment.run_plan.rounds
    expected = trained(build_process(simulation), plans)
    with caplog.at_level(logging.INFO, "m2fdp.processes"), on(cluster.address) as sites:

        def remove(number):
            if number == 3:
                cluster.remove_node(second, allow_graceful=False)

        assert trained(build_process(simulation, sites=sites), plans, remove) == expected
    lines = [record.message for record in caplog.records]
    assert lines[0].startswith("Ray: 2 cores of 2 nodes (")
    assert lines[1].startswith("Ray: a site on node ")
    assert "is lost; left: 1 core of 1 node (" in lines[1]


def test_a_killed_process_is_replaced_where_none_is_left(ray_cluster, caplog):
    import ray

    experiment = experiment_of({"training.rounds": 4, "topology.fanouts": [20, 3]})
    simulation, plans = experiment.simulation(), experiment.run_plan.rounds
    expected = trained(build_process(simulation), plans)
    with on(ray_cluster, workers=1) as sites:

        def kill(number):
            if number == 2:
                ray.kill(sites._members[0].actor)

        assert trained(build_process(simulation, sites=sites), plans, kill) == expected
    assert "is lost; left: none" in caplog.text


def test_without_any_node_training_stops_with_what_it_has_reached(ray_cluster, monkeypatch):
    experiment = experiment_of({"training.rounds": 4, "topology.fanouts": [20, 3]})
    simulation, plans = experiment.simulation(), experiment.run_plan.rounds
    with on(ray_cluster) as sites:
        process = build_process(simulation, sites=sites)
        state = process.round(process.start(), plans[0])
        sites.end()
        monkeypatch.setattr(sites, "_start", lambda timeout: [])
        with pytest.raises(SitesLostError, match=r"^Ray: no node is left"):
            process.round(state, plans[1])


def test_more_cores_than_there_are_are_refused(ray_cluster):
    with pytest.raises(InputError, match=r"^execution.workers = 3: is more than the cluster's 2"):
        on(ray_cluster, workers=3).__enter__()
