"""Small audited systems that the tests put together."""

from dataclasses import replace

import numpy as np
import pytest
from tests.adversaries.copies import audit_config

from m2fdp.adversaries.audit import audit, audited_lines
from m2fdp.adversaries.canaries import AuditedRun, plant
from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan, weighted
from m2fdp.core.topology.trust import explicit_trust


class System(AuditedRun):
    """A run, ready to be audited."""

    def plant(self, copies, seed=1, which=0):
        line = audited_lines(self.mechanism.ledger, self.schedule.rounds)[which]
        return plant(self, line.position, copies, seed), line

    def audit(self, repetitions, confidence=0.95, seed=1):
        config = audit_config(repetitions, confidence)
        return audit(self, self.schedule.rounds, config, seed)


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
            network = replace(
                network,
                noise=(
                    *(p * noise_below_heads for p in network.noise[:-1]),
                    np.ones(tree.n_devices),
                ),
            )
        local = local_aggregation or {}
        schedule = Schedule(rounds, steps, local, 0.1, step_size, pull / 0.1, center)
        config = PrivacyConfig(**({"epsilon": 2.0, "delta": 1e-5, "clipping_norm": 0.5} | privacy))
        rates = np.full(tree.n_devices, rate)
        threat = ThreatConfig(distrusted=["servers", "cloud", *(["public"] * trusted_cloud)])
        mechanism = build_mechanism(
            Premises(network, sizes, rates, schedule.round_plans(), config, threat)
        )
        return System(network, mechanism, schedule, config, sizes)

    return make
