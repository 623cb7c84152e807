"""Noise as numbers per node: calibrations with any parts, several adders a path, sums, weights; and
`calibration: multiplier`, every adder z times its sensitivity."""

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest
from tests.builders import experiment_of, premises_of
from tests.core.privacy.parts import epsilon_of, network_of, plans_of

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.calibration import build_mechanism, nominal_epsilon
from m2fdp.core.privacy.summary import summary, warnings
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, SecureSums, noise_plan, sample_weights, weighted
from m2fdp.core.topology.trust import all_trusted, all_untrusted

MECHANISMS = ["gradient", "upload"]
Z, EVERYBODY = 1.5, {"distrusted": ["servers", "cloud", "siblings", "far_devices", "public"]}


def calibrated(network, plans, sizes=100, rate=1.0, **privacy):
    usual = {"epsilon": 2, "delta": 1e-5, "clipping_norm": 1}
    threat = {"distrusted": ["cloud"]}
    return build_mechanism(premises_of(network, plans, usual | privacy, threat, sizes, rate))


def test_noise_below_a_trusted_head_is_as_large_against_its_message():
    network = network_of([2, 4])
    inner = replace(network, noise=(network.noise[0], network.noise[1] / 4, np.ones(8)))
    mechanism = calibrated(inner, plans_of(3, 2), mechanism="upload")
    head, device = mechanism.noise.messages[1][0], mechanism.noise.messages[2][0]
    assert device == pytest.approx(4 * 4 * head)  # a fourth of it moves the mean; the head has 1/4
    assert 1.98 < mechanism.epsilon(3) <= 2
    # Under noise at every step nobody below a head sends a message.
    gradient = calibrated(inner, plans_of(3, 2), mechanism="gradient")
    assert not any(messages.any() for messages in gradient.noise.messages)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("part", [1.0, 1 / sqrt(10)])
def test_behind_a_sum_ten_devices_share_one_noise(mechanism, part):
    """Whatever their parts, what is left after calibration is 1/sqrt(10) of one full noise."""
    network = network_of([10])
    plans = plans_of(4, 1)  # under `gradient` every step ends in the sum
    sums = SecureSums(frozenset([1]), shared=True)
    shared = replace(network, noise=(np.zeros(1), np.full(10, part)), sums=sums)
    alone, together = (calibrated(x, plans, mechanism=mechanism) for x in (network, shared))

    def of_a_device(found):
        return found.noise.steps[0] if mechanism == "gradient" else found.noise.messages[1][0]

    assert of_a_device(together) == pytest.approx(of_a_device(alone) / sqrt(10), rel=1e-3)
    # Who knows one of the ten parts is left with nine.
    found = {line.kind: line.deviation for line in together.ledger.lines}
    assert found["siblings"] == pytest.approx(found["cloud"] * sqrt(9 / 10))
    assert found["uplinks"] == inf


def test_weights_by_sample_count_are_shares_of_the_parent_s_records():
    tree = tree_from_fanouts([2, 2])
    rho = sample_weights(tree, np.array([10, 30, 20, 40]))
    assert [of_layer.tolist() for of_layer in rho] == [[0.4, 0.6], [0.25, 0.75, 1 / 3, 2 / 3]]
    network = Network(tree, all_untrusted(tree), noise_plan(tree, all_untrusted(tree)))
    by_samples = weighted(network, np.array([10, 30, 20, 40]), "samples")
    assert by_samples.shares(2, 0) == pytest.approx([0.1, 0.3, 0.2, 0.4])
    assert weighted(network, np.ones(4), "uniform") is network


def test_by_samples_every_record_moves_a_step_by_as_much():
    """omega_j C/(q D_j) with omega_j = D_j/D: C/(q D) for all records below a trusted server."""
    sizes = np.array([10, 30, 20, 40])
    network = weighted(network_of([1, 4]), sizes, "samples")
    mechanism = calibrated(network, plans_of(2, 2), sizes, rate=0.5, mechanism="gradient")
    units = [line.position.unit for line in mechanism.ledger.lines]
    assert units == pytest.approx([1 / (0.5 * 100)] * len(units))


def test_weights_by_samples_are_refused_where_they_are_not_proven():
    network = weighted(network_of([2, 2]), np.array([10, 20, 30, 40]), "samples")
    with pytest.raises(InputError, match="topology.weights = 'samples': .*participants: null"):
        replace(network, participants=1)
    with pytest.raises(InputError, match="topology.weights = 'samples': .*calibration: paper"):
        calibrated(network, plans_of(1, 1), mechanism="upload", calibration="paper")


def privacy_of(**changes):
    usual = {"calibration": "multiplier", "noise_multiplier": Z, "clipping_norm": 0.5}
    return PrivacyConfig(**(usual | {"delta": 1e-5} | changes))


def multiplied(network, plans, privacy, sizes=100, rate=1.0):
    return build_mechanism(premises_of(network, plans, privacy, EVERYBODY, sizes, rate))


def test_every_adder_takes_z_times_what_a_device_moves_its_message_by():
    """Each path has three adders, only the cloud is trusted. A part of the noise that many share is
    that part of z."""
    network = network_of([2, 4], ["server-1-0", "server-1-1"])
    network = replace(network, trust=(np.array([True]), *network.trust[1:]))
    privacy, full = privacy_of(mechanism="upload", unit="device"), Z * 0.5
    for part in (1.0, 0.5):
        shared = replace(network, noise=tuple(np.full(n, part) for n in (1, 2, 8)))
        noise = multiplied(shared, plans_of(3, 2), privacy).noise.messages
        assert noise[2] == pytest.approx([part * full] * 8)
        assert noise[1] == pytest.approx([part * full / 4] * 2)
        assert noise[0] == pytest.approx([part * full / 8])


def test_of_a_record_it_is_the_most_that_a_window_allows():
    """K = 3 steps, each of which parts two runs by at most 2 G."""
    network = network_of([2, 4], ["server-1-0"])
    noise = multiplied(network, plans_of(2, 3), privacy_of(mechanism="upload")).noise.messages
    assert noise[2][:4] == pytest.approx([Z * 3 * 2 * 0.5] * 4)
    assert noise[1][1] == pytest.approx(Z * 3 * 2 * 0.5 / 4)


def test_under_gradient_it_is_one_record_s_clipped_gradient():
    """C / (q D) at a device, and of the smallest shard below a server, over four."""
    network = network_of([2, 4], ["server-1-0"])
    sizes = np.array([100, 100, 50, 100, 80, 100, 40, 100])
    mechanism = multiplied(network, plans_of(2, 3), privacy_of(), sizes, rate=0.5)
    own = [Z * 0.5 / (0.5 * size) for size in sizes[:4]]
    assert mechanism.lock_step.nodes.tolist() == [[1, 1], [2, 0], [2, 1], [2, 2], [2, 3]]
    assert mechanism.noise.steps == pytest.approx([Z * 0.5 / (0.5 * 40) / 4, *own])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_one_release_at_z_1_is_worth_4_377(mechanism):
    privacy = privacy_of(mechanism=mechanism, unit="device", noise_multiplier=1, epsilon=7)
    dp = multiplied(network_of([10]), plans_of(1, 1), privacy)
    nominal = nominal_epsilon(dp.ledger, 1, privacy)
    assert nominal == pytest.approx(epsilon_of(1.0), rel=1e-4)
    assert nominal == pytest.approx(4.377, abs=5e-4) == dp.epsilon(1)
    found = dp.ledger.by_kind(1)
    # Sec. 1.3: the cloud's broadcast holds ten noises, a sibling knows one.
    if mechanism == "upload":
        assert found["public"] == pytest.approx(epsilon_of(1 / sqrt(10)), rel=1e-4)
        assert found["siblings"] == pytest.approx(epsilon_of(1 / 3), rel=1e-4)


def test_the_nominal_epsilon_is_that_of_one_adder_at_all_releases():
    network = network_of([2, 4])
    privacy = privacy_of(mechanism="upload", unit="device", epsilon=7)
    dp = multiplied(network, plans_of(6, 2), privacy)
    promised = summary(dp, 6, privacy)
    assert promised["calibration"] == "multiplier"
    assert promised["epsilon_nominal"] == pytest.approx(epsilon_of(sqrt(6) / Z), rel=1e-4)
    # After fewer rounds it is less, and what the cloud reads is worth as much.
    after_3 = summary(dp, 3, privacy)["epsilon_nominal"]
    assert after_3 == pytest.approx(epsilon_of(sqrt(3) / Z), rel=1e-4)
    assert dp.ledger.by_kind(6)["cloud"] == pytest.approx(promised["epsilon_nominal"], rel=1e-6)


def test_less_noise_than_one_adder_s_is_said():
    """Parts that nobody sums leave an observer more than one adder's noise would."""
    network = network_of([2, 4], ["server-1-0", "server-1-1"])
    halves = replace(network, noise=tuple(part / 2 for part in network.noise))
    privacy = privacy_of(mechanism="upload", unit="device")
    line, *_ = warnings(multiplied(halves, plans_of(3, 2), privacy), 3, privacy)
    expected = epsilon_of(2 * sqrt(3) / Z), epsilon_of(sqrt(3) / Z)
    assert line == "verified ε {:.3g} exceeds the nominal {:.3g}".format(*expected)


def test_a_trusted_cloud_takes_z_times_too():
    tree = tree_from_fanouts([2, 4])
    network = Network(tree, all_trusted(tree), noise_plan(tree, all_trusted(tree)))
    for mechanism in MECHANISMS:
        privacy = privacy_of(mechanism=mechanism, unit="device")
        dp = multiplied(network, plans_of(2, 1), privacy)
        drawn = dp.noise.steps if mechanism == "gradient" else dp.noise.messages[0]
        assert drawn == pytest.approx([Z * 0.5 / 8])
        assert dp.ledger.by_kind(2)["public"] == pytest.approx(epsilon_of(sqrt(2) / Z), rel=1e-4)


def test_an_experiment_says_what_its_noise_is():
    multiplier = {"privacy.calibration": "multiplier", "privacy.noise_multiplier": 2.0}
    experiment = experiment_of(multiplier, {"training.rounds": 2, "training.batch_size": None})
    assert "gradient at 2 times the sensitivity" in repr(experiment)
    steps = 2 * experiment.config.training.local_steps
    nominal = experiment.summary()["epsilon_nominal"]
    assert nominal == pytest.approx(epsilon_of(sqrt(steps) / 2), rel=1e-4)
