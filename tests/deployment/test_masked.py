"""Sums that hide their terms, between nodes."""

import pytest
from tests.deployment.test_nodes import check_equal

MASKS = {"secure_aggregation.layers": [1, 2], "secure_aggregation.protocol": "masks"}
STAR = {
    "topology.fanouts": [4],
    "topology.trust.ratios": [],
    "training.local_aggregation": None,
    "secure_aggregation.layers": [1],
}
DEEP = {
    "topology.fanouts": [2, 3, 2],
    "topology.trust.ratios": [0.5, 0.5],
    "secure_aggregation.layers": [1, 2, 3],
}


@pytest.mark.parametrize("tree", [{}, DEEP, STAR], ids=["1-2-4", "1-2-6-12", "star"])
def test_bytes_and_ledger_are_the_simulator_s(tree):
    check_equal({**MASKS, **tree})
