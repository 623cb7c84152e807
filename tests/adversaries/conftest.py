"""Small audited systems that the tests put together."""

from dataclasses import replace

import numpy as np
import pytest
from tests.adversaries.copies import System
from tests.builders import premises_of

from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan, weighted
from m2fdp.core.topology.trust import explicit_trust


@pytest.fixture(scope="session")
def make_system():
    """Two edge servers with three devices each, the first trusted, unless told otherwise; `pull` is
    the part of a step that goes to the proximal term's centre."""

    def make(
        fanouts=(2, 3),
        untrusted=("server-1-1",),
        rounds=3,
        steps=4,
        local_aggregation=None,
        size=100,
        rate=0.5,
        step_size="constant",
        weights="uniform",
        noise_below_heads=None,
        trusted_cloud=False,
        pull=0.0,
        center="received",
        **privacy,
    ):
        tree = tree_from_fanouts(list(fanouts))
        trust = explicit_trust(tree, list(untrusted))
        if trusted_cloud:
            trust = (np.array([True]), *trust[1:])
        sizes = np.broadcast_to(size, tree.n_devices)
        network = weighted(Network(tree, trust, noise_plan(tree, trust)), sizes, weights)
        if noise_below_heads is not None:  # devices add all of theirs, servers so much
            servers = (part * noise_below_heads for part in network.noise[:-1])
            network = replace(network, noise=(*servers, np.ones(tree.n_devices)))
        local = local_aggregation or {}
        schedule = Schedule(rounds, steps, local, 0.1, step_size, pull / 0.1, center)
        usual = {"epsilon": 2.0, "delta": 1e-5, "clipping_norm": 0.5}
        threat = {"distrusted": ["servers", "cloud", *(["public"] * trusted_cloud)]}
        premises = premises_of(
            network, schedule.round_plans(), usual | privacy, threat, sizes, rate
        )
        return System(network, build_mechanism(premises), schedule, premises.privacy, sizes)

    return make
