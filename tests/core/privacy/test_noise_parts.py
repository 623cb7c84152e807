"""Noise as numbers per node: calibrations with any parts, several adders a path, sums, weights."""

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest
from tests.builders import premises_of

from m2fdp.core.errors import InputError
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan, sample_weights, weighted
from m2fdp.core.topology.sums import SecureSums
from m2fdp.core.topology.trust import all_untrusted

DELTA = 1e-5
MECHANISMS = ["gradient", "upload"]


def calibrated(network, plans, distrusted, sizes=100, rate=1.0, **privacy):
    usual = {"epsilon": 2, "delta": DELTA, "clipping_norm": 1}
    threat = {"distrusted": distrusted}
    return build_mechanism(premises_of(network, plans, usual | privacy, threat, sizes, rate))


def once_more(network):
    """Every server adds a full noise of its own, the plan's adders as planned."""
    tree = network.tree
    extra = tuple(np.maximum(part, 1.0) for part in network.noise[: tree.depth])
    return replace(network, noise=(network.noise[0], *extra[1:], network.noise[-1]))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_server_noises_once_more(network_of, plans_of, mechanism):
    """Servers 1-0, 2-0 and 2-2 are untrusted; what they add is as large against what they send."""
    network = network_of([2, 2, 2], ["server-1-0", "server-2-0", "server-1-1", "server-2-2"])
    plans = plans_of(3, 2)
    threat = ["servers", "cloud"]
    plain = calibrated(network, plans, threat, mechanism=mechanism)
    more = calibrated(once_more(network), plans, threat, mechanism=mechanism)
    heads = {tuple(node) for node in plain.lock_step.nodes.tolist()}
    if mechanism == "gradient":
        assert more.noise.steps == pytest.approx(plain.noise.steps)
        of_head = dict(
            zip(map(tuple, plain.lock_step.nodes.tolist()), plain.noise.steps, strict=True)
        )
        assert heads == {(3, 0), (3, 1), (2, 1), (3, 4), (3, 5), (2, 3)}
    else:
        of_head = {(3, 0): plain.noise.messages[3][0], (2, 1): plain.noise.messages[2][1]}
        assert more.noise.messages[3] == pytest.approx(plain.noise.messages[3])
    # Half of a device's, a quarter of it or half of a trusted server's further up.
    assert more.noise.messages[2][0] == pytest.approx(of_head[3, 0] / 2)
    largest = max(of_head[3, 0] / 4, of_head[2, 1] / 2)
    assert more.noise.messages[1][0] == pytest.approx(largest)
    assert not more.noise.messages[0].any()
    # It costs nobody anything, and under `upload` the cloud learns less.
    for kind, value in more.ledger.by_kind(3).items():
        assert value <= plain.ledger.by_kind(3)[kind] * (1 + 1e-9)
    less = more.ledger.by_kind(3)["cloud"] < 0.95 * plain.ledger.by_kind(3)["cloud"]
    assert less == (mechanism == "upload")


def test_noise_below_a_trusted_head_is_as_large_against_its_message(network_of, plans_of):
    network = network_of([2, 4])
    inner = replace(network, noise=(network.noise[0], network.noise[1] / 4, np.ones(8)))
    mechanism = calibrated(inner, plans_of(3, 2), ["cloud"], mechanism="upload")
    head, device = mechanism.noise.messages[1][0], mechanism.noise.messages[2][0]
    assert device == pytest.approx(4 * 4 * head)  # a fourth of it moves the mean; the head has 1/4
    assert 1.98 < mechanism.epsilon(3) <= 2
    # Under noise at every step nobody below a head sends a message.
    gradient = calibrated(inner, plans_of(3, 2), ["cloud"], mechanism="gradient")
    assert not any(messages.any() for messages in gradient.noise.messages)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("part", [1.0, 1 / sqrt(10)])
def test_behind_a_sum_ten_devices_share_one_noise(network_of, plans_of, mechanism, part):
    """Whatever their parts, what is left after calibration is 1/sqrt(10) of one full noise."""
    network = network_of([10])
    plans = plans_of(4, 1)  # under `gradient` every step ends in the sum
    alone = calibrated(network, plans, ["cloud"], mechanism=mechanism)
    sums = SecureSums(frozenset([1]), shared=True)
    shared = replace(network, noise=(np.zeros(1), np.full(10, part)), sums=sums)
    together = calibrated(shared, plans, ["cloud"], mechanism=mechanism)

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


def test_by_samples_every_record_moves_a_step_by_as_much(network_of, plans_of):
    """omega_j C/(q D_j) with omega_j = D_j/D: C/(q D) for all records below a trusted server."""
    sizes = np.array([10, 30, 20, 40])
    network = weighted(network_of([1, 4]), sizes, "samples")
    mechanism = calibrated(
        network, plans_of(2, 2), ["cloud"], sizes=sizes, rate=0.5, mechanism="gradient"
    )
    units = [line.position.unit for line in mechanism.ledger.lines]
    assert units == pytest.approx([1 / (0.5 * 100)] * len(units))


def test_weights_by_samples_are_refused_where_they_are_not_proven(network_of, plans_of):
    network = weighted(network_of([2, 2]), np.array([10, 20, 30, 40]), "samples")
    with pytest.raises(InputError, match="topology.weights = 'samples': .*participants: null"):
        replace(network, participants=1)
    with pytest.raises(InputError, match="topology.weights = 'samples': .*calibration: paper"):
        calibrated(network, plans_of(1, 1), ["cloud"], mechanism="upload", calibration="paper")
