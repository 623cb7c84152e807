"""A Ray cluster for the studies' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[str]:
    """The address of a Ray cluster on this machine: two nodes, a worker each."""
    pytest.importorskip("ray", reason="Ray is an extra: requirements-ray.lock")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=node)
        cluster.add_node(**node)
    yield cluster.address
    cluster.shutdown()
