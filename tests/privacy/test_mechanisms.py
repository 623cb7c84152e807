"""Where the mechanisms put how much noise: by hand, and on ragged trees."""

from math import log, sqrt

import numpy as np
import pytest

from m2fdp.config import PrivacyConfig, TrainingConfig
from m2fdp.errors import InputError
from m2fdp.privacy.accounting import gaussian_epsilon, least_noise_multiplier
from m2fdp.privacy.mechanisms import build_mechanism, check_delta, no_privacy, summary
from m2fdp.topology.builders import tree_from_edges, tree_from_fanouts
from m2fdp.topology.network import Network, no_noise, noise_plan
from m2fdp.topology.trust import explicit_trust

TRAINING = TrainingConfig(rounds=10, local_steps=4, learning_rate=0.1, batch_size=30)
GRADIENT = PrivacyConfig(epsilon=2, delta=1e-5, clipping_norm=0.5)
UPLOAD = PrivacyConfig(
    mechanism="upload", calibration="paper", alpha=3, epsilon=2, delta=1e-5, clipping_norm=0.5
)


def network_of(tree, untrusted):
    trust = explicit_trust(tree, untrusted)
    return Network(tree, trust, noise_plan(tree, trust))


def test_upload_is_proposition_1_with_lemma_1():
    network = network_of(tree_from_fanouts([2, 3, 4]), ["server-1-0", "server-2-0"])
    sizes = np.full(24, 60)
    mechanism = build_mechanism(network, sizes, np.full(24, 0.5), TRAINING, UPLOAD)
    scale = 3 * 0.5 * sqrt(4 * 10 * log(1e5)) / 2
    sensitivity = 2 * 4 * 0.5  # of a device, over eta
    assert mechanism.guarantee == "nominal only"
    assert mechanism.epsilon(10, 1e-5) is None
    # Layer 1: only the trusted server noises, below it are 3 x 4 devices.
    assert mechanism.noise.messages[0] == pytest.approx([0, scale * sensitivity / 12])
    # Layer 2: the trusted children of the untrusted server.
    layer_2 = [0, scale * sensitivity / 4, scale * sensitivity / 4, 0, 0, 0]
    assert mechanism.noise.messages[1] == pytest.approx(layer_2)
    # Devices: those below the untrusted server of layer 2.
    layer_3 = [scale * sensitivity] * 4 + [0] * 20
    assert mechanism.noise.messages[2] == pytest.approx(layer_3)
    assert not mechanism.noise.steps.any()


def test_gradient_noise_covers_the_largest_shift_below_a_trusted_server():
    # Ragged: A is trusted with 1 device below a and 2 below b; B is untrusted with 1 device.
    edges = [("c", "A"), ("c", "B"), ("A", "a"), ("A", "b"), ("B", "d")]
    edges += [("a", "1"), ("b", "2"), ("b", "3"), ("d", "4")]
    network = network_of(tree_from_edges(edges), ["B", "d"])
    sizes = np.array([60, 300, 60, 100])
    rates = np.array([0.5, 0.1, 0.5, 0.3])
    mechanism = build_mechanism(network, sizes, rates, TRAINING, GRADIENT)
    lock_step = mechanism.lock_step
    assert lock_step.nodes.tolist() == [[1, 0], [3, 3]]
    assert lock_step.group_of.tolist() == [0, 0, 0, 1]
    assert lock_step.weights.tolist() == [0.5, 0.25, 0.25, 1.0]
    z = {rate: least_noise_multiplier(rate, 40, 2.0, 1e-5) for rate in (0.5, 0.1, 0.3)}
    shift = 0.5 / 30  # C/B, the same for all: the expected sizes are 30
    head = max(z[0.5] * 0.5, z[0.1] * 0.25, z[0.5] * 0.25) * shift
    assert mechanism.noise.steps == pytest.approx([head, z[0.3] * shift])
    assert not any(messages.any() for messages in mechanism.noise.messages)
    assert mechanism.guarantee == "verified"
    assert 2 * 0.99 < mechanism.epsilon(10, 1e-5) <= 2
    assert mechanism.epsilon(5, 1e-5) < mechanism.epsilon(10, 1e-5)
    worst = max(
        gaussian_epsilon(r.noise_multiplier, r.sampling_rate, 40, 1e-5) for r in mechanism.releases
    )
    assert mechanism.epsilon(10, 1e-5) == worst
    assert sum(release.devices for release in mechanism.releases) == 4


def test_epsilon_is_the_largest_over_all_classes():
    """Unequal shards below one trusted server: some classes are dominated, some are not."""
    network = network_of(tree_from_fanouts([2, 3]), ["server-1-0"])
    sizes = np.array([60, 75, 120, 60, 80, 600])
    rates = 30 / sizes
    mechanism = build_mechanism(network, sizes, rates, TRAINING, GRADIENT)
    assert len(mechanism.releases) == 5
    for rounds in (1, 10):
        every = [
            gaussian_epsilon(r.noise_multiplier, r.sampling_rate, 4 * rounds, 1e-5)
            for r in mechanism.releases
        ]
        assert mechanism.epsilon(rounds, 1e-5) == max(every)


def test_no_privacy_has_no_noise_and_no_clipping():
    tree = tree_from_fanouts([2, 2])
    trust = explicit_trust(tree, [])
    mechanism = no_privacy(Network(tree, trust, no_noise(tree)), GRADIENT)
    assert mechanism.clipping.record_norm is None
    assert mechanism.clipping.batch_norm is None
    assert not mechanism.noise.steps.any()
    assert summary(mechanism, 10, GRADIENT)["guarantee"] == "none"


def test_summary_names_what_the_promise_rests_on():
    network = network_of(tree_from_fanouts([2, 2]), [])
    mechanism = build_mechanism(network, np.full(4, 60), np.full(4, 0.5), TRAINING, GRADIENT)
    result = summary(mechanism, 10, GRADIENT)
    assert result["epsilon_nominal"] == 2
    assert result["epsilon_verified"] <= 2
    assert (result["unit"], result["adjacency"]) == ("record", "add_remove")
    assert result["compositions"] == 40
    assert result["accountant"].startswith("dp-accounting")
    upload = build_mechanism(network, np.full(4, 60), np.full(4, 0.5), TRAINING, UPLOAD)
    assert "epsilon_verified" not in summary(upload, 10, UPLOAD)


def test_delta_must_be_below_one_over_the_largest_shard():
    check_delta(0.009, np.array([10, 100]))
    with pytest.raises(InputError, match=r"privacy.delta = 0.01: must be below 1/100"):
        check_delta(0.01, np.array([10, 100]))
