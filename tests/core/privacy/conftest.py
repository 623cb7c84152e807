"""Networks, plans and ledgers that the privacy tests put together."""

import numpy as np
import pytest
from tests.builders import premises_of

from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import explicit_trust

# J's noise for a nominal epsilon of 1; G = 1 makes noise and shifts easy to read.
PAPER = {
    "mechanism": "upload",
    "calibration": "paper",
    "alpha": 10.0,  # moderate epsilons are quick to compute
    "epsilon": 1.0,
    "delta": 1e-5,
    "clipping_norm": 1.0,
}


@pytest.fixture(scope="session")
def plans_of():
    """T rounds of K steps with local aggregations {layer: every}."""

    def make(rounds, steps, local_aggregation=None, eta=0.1) -> tuple[RoundPlan, ...]:
        return Schedule(rounds, steps, local_aggregation or {}, eta, "constant").round_plans()

    return make


@pytest.fixture(scope="session")
def network_of():
    """A network from a tree, or fan-outs, and the names of its untrusted servers."""

    def make(tree, untrusted=()) -> Network:
        tree = tree_from_fanouts(tree) if isinstance(tree, list) else tree
        trust = explicit_trust(tree, list(untrusted))
        return Network(tree, trust, noise_plan(tree, trust))

    return make


@pytest.fixture(scope="session")
def mechanism_of():
    """A mechanism for shards of one size, or of the given sizes, with J's noise by default."""

    def make(network, plans, batch=32, size=1200, threat=None, **privacy):
        rates = np.minimum(1.0, batch / np.asarray(size))
        return build_mechanism(premises_of(network, plans, PAPER | privacy, threat, size, rates))

    return make
