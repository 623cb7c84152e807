"""Noised activations and client gradients at a server that nobody trusts, and their one line."""

from math import exp, inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import premises_of
from tests.core.privacy.parts import epsilon_of

from m2fdp import load_config
from m2fdp.core.config import Config
from m2fdp.core.privacy.calibration import CalibratedMechanism, build_mechanism
from m2fdp.core.schedule.schedule import build_schedule
from m2fdp.core.streams import generator
from m2fdp.core.topology.builders import build_tree
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted, build_trust
from m2fdp.tiers.split_noise import randomised_response

RECORDS, BATCH = 400, 20


STAR = {"topology.fanouts": [10], "training.rounds": 30, "training.local_steps": 1}
STAR |= {"training.local_aggregation": None, "privacy.adjacency": "zero_out"}
SOME_TRUSTED = {"topology.fanouts": [4, 3], "topology.trust.ratios": [0.5]}


def config_of(*changes) -> Config:
    return load_config(STAR, *changes)


def network_of(config: Config, splits: np.ndarray | None = None) -> Network:
    tree = build_tree(config.topology)
    star = tree.depth == 1
    trust = all_untrusted(tree) if star else build_trust(tree, config.topology, config.seed)
    splits = np.ones(tree.n_devices, dtype=bool) if splits is None else splits
    return Network(tree, trust, noise_plan(tree, trust), splits=splits)


def mechanism_of(config: Config, splits: np.ndarray | None = None) -> CalibratedMechanism:
    network = network_of(config, splits)
    plans = build_schedule(config.training, network.tree.depth).round_plans()
    rate = BATCH / RECORDS
    return build_mechanism(premises_of(network, plans, config.privacy, None, RECORDS, rate))


def multipliers(mechanism: CalibratedMechanism, config: Config) -> tuple[float, float]:
    """zeta_g and zeta_z of the first device."""
    clients, privacy = mechanism.noise.clients, config.privacy
    unit = privacy.clipping_norm / BATCH
    return clients.gradients[0] / unit, clients.activations[0] / privacy.activation_clip


@pytest.mark.parametrize(
    ("epsilon", "zeta"), [(1.0, 28.9), (4.0, 8.38), (8.0, 4.65), (50.0, 1.16), (200.0, 0.477)]
)
def test_calibrated_noise_is_that_of_the_closed_form(epsilon, zeta):
    config = config_of({"privacy.epsilon": epsilon})
    of_gradients, of_activations = multipliers(mechanism_of(config), config)
    assert of_gradients == pytest.approx(zeta, rel=5e-3)
    assert of_activations == pytest.approx(of_gradients)


@settings(max_examples=8, deadline=None)
@given(
    share=st.floats(0.05, 0.95),
    rounds=st.integers(1, 40),
    epochs=st.integers(1, 3),
    adjacency=st.sampled_from(["zero_out", "replace_one"]),
    multiplier=st.floats(0.8, 40.0),
)
def test_every_line_is_balle_and_wang_at_the_joint_shift(
    share, rounds, epochs, adjacency, multiplier
):
    """Bar 13: mu = s sqrt(R E (1/zeta_g^2 + 1/zeta_z^2)), to 1e-6."""
    privacy = {"activation_share": share, "clipping_norm": 0.5, "adjacency": adjacency}
    privacy |= {"calibration": "multiplier", "noise_multiplier": multiplier}
    steps = {"training.rounds": rounds, "training.local_steps": epochs}
    config = config_of(steps, {"privacy": privacy})
    mechanism = mechanism_of(config)
    gradients, activations = multipliers(mechanism, config)
    assert 1 / activations**2 == pytest.approx(share / (1 - share) / gradients**2)
    factor = 2 if adjacency == "replace_one" else 1
    mu = factor * sqrt(rounds * epochs * (1 / gradients**2 + 1 / activations**2))
    expected = epsilon_of(mu, config.privacy.delta)
    for line in mechanism.ledger.lines:
        value = mechanism.ledger.epsilon(line, rounds)
        assert value == inf if line.kind == "labels" else value == pytest.approx(expected, abs=1e-6)
    assert mechanism.epsilon(rounds) == pytest.approx(expected, abs=1e-6)
    assert not mechanism.noise.steps.any()


def test_who_sees_what():
    lines = {line.kind: line for line in mechanism_of(config_of()).ledger.lines}
    assert lines["cloud"].sees.startswith("noised activations, and what follows")
    assert lines["uplinks"].sees == lines["cloud"].sees
    assert lines["public"].sees.startswith("what follows from noised activations")
    assert lines["labels"].assumption == "labels: public, not protected"
    assert all(line.position.sampling_rate == 1.0 for line in lines.values())


def test_randomised_labels_are_a_part_of_epsilon_and_spent_once():
    config = config_of({"privacy.labels": "randomised", "privacy.label_epsilon": 1.5})
    mechanism = mechanism_of(config)
    ledger = mechanism.ledger
    assert ledger.by_kind(30)["labels"] == ledger.by_kind(1)["labels"] == 1.5
    assert mechanism.epsilon(30) == pytest.approx(4.0, rel=1e-3)
    without = mechanism_of(config_of({"privacy.epsilon": 2.5}))
    assert ledger.verified(12) == pytest.approx(1.5 + without.ledger.verified(12), rel=1e-3)
    assert without.ledger.verified(12) < 2.0


def test_randomised_response_keeps_labels_as_often_as_it_may():
    """The chances of two labels' answers differ by e^eps at most; 5 sigma, both ways."""
    n, classes, eps = 40_000, 4, 1.2
    labels = np.arange(n) % classes
    drawn = randomised_response(labels, classes, eps, generator(0, "label-noise"))
    keep = exp(eps) / (exp(eps) + classes - 1)
    assert abs((drawn == labels).mean() - keep) < 5 * sqrt(keep * (1 - keep) / n)
    other = (1 - keep) / (classes - 1)
    for shift in range(1, classes):
        share = ((labels + shift) % classes == drawn).mean()
        assert abs(share - other) < 5 * sqrt(other * (1 - other) / n)
    assert (drawn == randomised_response(labels, classes, eps, generator(0, "label-noise"))).all()


def test_below_a_trusted_server_the_ledger_is_what_it_is_without_splits():
    config = config_of(SOME_TRUSTED, {"privacy.adjacency": "add_remove"})
    network = network_of(config)
    below_trusted = network.trust[1][network.tree.parents[1]]
    plain, split = (
        mechanism_of(config, splits) for splits in (~below_trusted & False, below_trusted)
    )
    assert split.noise.clients is None
    np.testing.assert_array_equal(plain.noise.steps, split.noise.steps)
    assert plain.ledger.by_kind(30) == split.ledger.by_kind(30)
    (trusted,) = (line for line in split.ledger.lines if line.kind == "trusted_servers")
    assert trusted.sees == "activations and labels in clear"
    assert trusted.assumption == "trusted by declaration"
    assert split.ledger.epsilon(trusted, 30) == inf


def test_some_split_below_servers_that_nobody_trusts_beside_trusted_ones():
    config = config_of(SOME_TRUSTED)
    network, mechanism = network_of(config), mechanism_of(config)
    exposed = ~network.trust[1][network.tree.parents[1]]
    clients = mechanism.noise.clients
    assert ((clients.gradients > 0) == exposed).all()
    assert ((clients.activations > 0) == exposed).all()
    assert mechanism.epsilon(30) <= 4.0
    nodes = mechanism.lock_step.nodes
    assert ((mechanism.noise.steps > 0) == (nodes[:, 0] < 2)).all()
