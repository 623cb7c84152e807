"""`calibration: multiplier`: every adder z times its sensitivity, and what that is worth."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from tests.builders import experiment_of, premises_of
from tests.core.privacy.closed_forms import epsilon_of

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.privacy.multiplier import nominal_epsilon
from m2fdp.core.privacy.summary import summary, warnings
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_trusted

Z = 1.5


EVERYBODY = {"distrusted": ["servers", "cloud", "siblings", "far_devices", "public"]}


def privacy_of(**changes):
    usual = {"calibration": "multiplier", "noise_multiplier": Z, "clipping_norm": 0.5}
    return PrivacyConfig(**(usual | {"delta": 1e-5} | changes))


def mechanism_of(network, plans, privacy, sizes=100, rate=1.0):
    return build_mechanism(premises_of(network, plans, privacy, EVERYBODY, sizes, rate))


def everybody_noises(network):
    """Devices, two servers and the cloud, each path with three adders; only the cloud trusted."""
    tree = network.tree
    noise = tuple(np.ones(tree.n_nodes(layer)) for layer in range(tree.depth + 1))
    trust = (np.array([True]), *network.trust[1:])
    return replace(network, noise=noise, trust=trust)


def test_every_adder_takes_z_times_what_a_device_moves_its_message_by(network_of, plans_of):
    """A part of the noise that many share is that part of z."""
    network = everybody_noises(network_of([2, 4], ["server-1-0", "server-1-1"]))
    privacy, full = privacy_of(mechanism="upload", unit="device"), Z * 0.5
    for part in (1.0, 0.5):
        shared = replace(network, noise=tuple(part * of_layer for of_layer in network.noise))
        noise = mechanism_of(shared, plans_of(3, 2), privacy).noise.messages
        assert noise[2] == pytest.approx([part * full] * 8)
        assert noise[1] == pytest.approx([part * full / 4] * 2)
        assert noise[0] == pytest.approx([part * full / 8])


def test_of_a_record_it_is_the_most_that_a_window_allows(network_of, plans_of):
    """K = 3 steps, each of which parts two runs by at most 2 G."""
    network = network_of([2, 4], ["server-1-0"])
    noise = mechanism_of(network, plans_of(2, 3), privacy_of(mechanism="upload")).noise.messages
    assert noise[2][:4] == pytest.approx([Z * 3 * 2 * 0.5] * 4)
    assert noise[1][1] == pytest.approx(Z * 3 * 2 * 0.5 / 4)


def test_under_gradient_it_is_one_record_s_clipped_gradient(network_of, plans_of):
    """C / (q D) at a device, and of the smallest shard below a server, over four."""
    network = network_of([2, 4], ["server-1-0"])
    sizes = np.array([100, 100, 50, 100, 80, 100, 40, 100])
    mechanism = mechanism_of(network, plans_of(2, 3), privacy_of(), sizes, rate=0.5)
    own = [Z * 0.5 / (0.5 * size) for size in sizes[:4]]
    assert mechanism.lock_step.nodes.tolist() == [[1, 1], [2, 0], [2, 1], [2, 2], [2, 3]]
    assert mechanism.noise.steps == pytest.approx([Z * 0.5 / (0.5 * 40) / 4, *own])


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_one_release_at_z_1_is_worth_4_377(network_of, plans_of, mechanism):
    network = network_of([10], [])
    privacy = privacy_of(mechanism=mechanism, unit="device", noise_multiplier=1, epsilon=7)
    dp = mechanism_of(network, plans_of(1, 1), privacy)
    assert nominal_epsilon(dp.ledger, 1, privacy) == pytest.approx(4.377, abs=5e-4)
    assert nominal_epsilon(dp.ledger, 1, privacy) == pytest.approx(epsilon_of(1.0), rel=1e-4)
    assert dp.epsilon(1) == pytest.approx(4.377, abs=5e-4)
    found = dp.ledger.by_kind(1)
    # Sec. 1.3: the cloud's broadcast holds ten noises, a sibling knows one.
    if mechanism == "upload":
        assert found["public"] == pytest.approx(epsilon_of(1 / sqrt(10)), rel=1e-4)
        assert found["siblings"] == pytest.approx(epsilon_of(1 / 3), rel=1e-4)


def test_the_nominal_epsilon_is_that_of_one_adder_at_all_releases(network_of, plans_of):
    network = network_of([2, 4])
    privacy = privacy_of(mechanism="upload", unit="device", epsilon=7)
    dp = mechanism_of(network, plans_of(6, 2), privacy)
    promised = summary(dp, 6, privacy)
    assert promised["calibration"] == "multiplier"
    assert promised["epsilon_nominal"] == pytest.approx(epsilon_of(sqrt(6) / Z), rel=1e-4)
    # After fewer rounds it is less, and what the cloud reads is worth as much.
    assert summary(dp, 3, privacy)["epsilon_nominal"] == pytest.approx(
        epsilon_of(sqrt(3) / Z), rel=1e-4
    )
    assert dp.ledger.by_kind(6)["cloud"] == pytest.approx(promised["epsilon_nominal"], rel=1e-6)


def test_less_noise_than_one_adder_s_is_said(network_of, plans_of):
    """Parts that nobody sums leave an observer more than one adder's noise would."""
    network = network_of([2, 4], ["server-1-0", "server-1-1"])
    halves = replace(network, noise=tuple(part / 2 for part in network.noise))
    privacy = privacy_of(mechanism="upload", unit="device")
    line, *_ = warnings(mechanism_of(halves, plans_of(3, 2), privacy), 3, privacy)
    expected = epsilon_of(2 * sqrt(3) / Z), epsilon_of(sqrt(3) / Z)
    assert line == "verified ε {:.3g} exceeds the nominal {:.3g}".format(*expected)


def test_a_trusted_cloud_takes_z_times_too(plans_of, network_of):
    tree = network_of([2, 4]).tree
    everybody = all_trusted(tree)
    network = Network(tree, everybody, noise_plan(tree, everybody))
    for mechanism in ("gradient", "upload"):
        privacy = privacy_of(mechanism=mechanism, unit="device")
        dp = mechanism_of(network, plans_of(2, 1), privacy)
        drawn = dp.noise.steps if mechanism == "gradient" else dp.noise.messages[0]
        assert drawn == pytest.approx([Z * 0.5 / 8])
        assert dp.ledger.by_kind(2)["public"] == pytest.approx(epsilon_of(sqrt(2) / Z), rel=1e-4)


def test_an_experiment_says_what_its_noise_is():
    experiment = experiment_of(
        {
            "privacy.calibration": "multiplier",
            "privacy.noise_multiplier": 2.0,
            "training.rounds": 2,
            "training.batch_size": None,
        }
    )
    assert "gradient at 2 times the sensitivity" in repr(experiment)
    steps = 2 * experiment.config.training.local_steps
    nominal = experiment.summary()["epsilon_nominal"]
    assert nominal == pytest.approx(epsilon_of(sqrt(steps) / 2), rel=1e-4)
