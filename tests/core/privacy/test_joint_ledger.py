"""Runs whose rounds differ in who takes part: one ledger and one calibration for all."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.privacy.accounting import ShiftLaw
from m2fdp.core.privacy.calibration import build_mechanisms
from m2fdp.core.privacy.ledger import joint_ledger
from m2fdp.core.privacy.ledger_tables import ledger_table
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.builders import tree_from_edges

UPLOAD = PrivacyConfig(
    mechanism="upload", calibration="paper", epsilon=1, delta=1e-5, clipping_norm=1, alpha=10
)
VARIANTS = {
    "gradient": PrivacyConfig(epsilon=1, delta=1e-5, clipping_norm=1),
    "device": PrivacyConfig(epsilon=1, delta=1e-5, clipping_norm=1, unit="device"),
    "upload": UPLOAD.model_copy(update={"calibration": "accountant"}),
}
ONE_STEP, TWO_STEPS = (0,), (None, 0)


def mechanisms_of(networks, plans, privacy, rate=0.1, sizes=100):
    n_devices = networks[0].tree.n_devices
    sizes, rates = np.broadcast_to(sizes, n_devices).astype(int), np.full(n_devices, rate)
    given = sizes, rates, plans, privacy, ThreatConfig()
    return build_mechanisms([Premises(network, *given) for network in networks])


def of_two(network, present):
    return [network, replace(network, participants=np.array(present))]


def line_of(ledger, device, kind="cloud"):
    (line,) = [x for x in ledger.lines if x.kind == kind and device in x.position.members]
    return line


def test_each_round_enters_with_the_shares_and_the_noise_of_its_network(network_of):
    """Devices 0…3 below a trusted server, 4…7 below an untrusted one; one round of all, then two
    of two devices each, K = 2, q = 1/2. Prop. 1: sigma = alpha q Delta sqrt(K T ln(1/delta)),
    Delta = 2 K G / s, with s = 4 and then 2 at the trusted server, and 1 at a device.

    A record first drawn at step 1 moves the trusted server's model by 2·2G/s, at step 2 by 2G/s.
    """
    network = network_of([2, 4], ["server-1-1"])
    networks = of_two(network, [2, 2])
    plans = [RoundPlan(TWO_STEPS, 1.0, network) for network in (0, 1, 1)]
    first, second = mechanisms_of(networks, plans, UPLOAD, rate=0.5)
    assert first.ledger is second.ledger
    scale = 10 * 0.5 * np.sqrt(2 * 3 * np.log(1e5))
    for mechanism, s in ((first, 4), (second, 2)):
        assert mechanism.noise.messages[1].tolist() == pytest.approx([scale * 4 / s, 0])
        assert mechanism.noise.messages[2].tolist() == pytest.approx([0] * 4 + [scale * 4] * 4)
    ledger = first.ledger
    # Shift and noise are both over s at the server, so all rounds share one law.
    trusted = dict(ledger.composition(line_of(ledger, 0), 3))
    assert sum(trusted.values()) == 3
    for law in trusted:
        assert law.shifts == pytest.approx((0, 0.5 / scale, 1 / scale))
        assert law.probabilities == pytest.approx((0.25, 0.25, 0.5))
    # The cloud sees the mean of the devices' models, whose noise is sqrt(s) of one device's.
    line = line_of(ledger, 4)
    for rounds, expected in ((1, {4: 1}), (3, {4: 1, 2: 2})):
        found = {round(law.largest, 9): n for law, n in ledger.composition(line, rounds)}
        assert found == {round(1 / (scale * np.sqrt(s)), 9): n for s, n in expected.items()}
    own = dict(ledger.composition(line_of(ledger, 4, "servers"), 3))
    assert [round(law.largest * scale, 9) for law in own] == [1.0]


def test_joining_ledgers_of_equal_networks_changes_no_number(network_of):
    network = network_of([2, 3], ["server-1-1"])
    plans = [RoundPlan(TWO_STEPS, 1.0), RoundPlan((None, 1, 0), 1.0)]
    (alone,) = mechanisms_of([network], plans, UPLOAD)
    doubled = joint_ledger([alone.ledger, alone.ledger])
    second = replace(plans[1], network=1)
    joint = replace(doubled, plans=(plans[0], second))
    assert joint.by_kind(2) == alone.ledger.by_kind(2)
    table = ledger_table(joint, 2)
    assert table.equals(ledger_table(alone.ledger, 2))


def test_devices_share_a_line_where_they_share_all_positions(network_of):
    """All six devices are alike while all take part; one of three sends and two of three do."""
    network = network_of([2, 3], ["server-1-0", "server-1-1"])
    (alone,) = mechanisms_of([network], [RoundPlan(ONE_STEP, 1.0)], UPLOAD)
    plans = [RoundPlan(ONE_STEP, 1.0, n) for n in (0, 1)]
    joint = mechanisms_of(of_two(network, [1, 2]), plans, UPLOAD)[0].ledger
    assert {line.position.members for line in alone.ledger.lines} == {tuple(range(6))}
    assert {line.position.members for line in joint.lines} == {(0, 1, 2), (3, 4, 5)}


@pytest.mark.parametrize(
    "name", ["gradient", "device", pytest.param("upload", marks=pytest.mark.full)]
)
def test_the_whole_run_meets_the_target_and_wastes_little(network_of, name):
    tree = tree_from_edges(
        [("c", "A"), ("c", "B"), ("A", "a"), ("A", "b"), ("B", "d")]
        + [("a", "0"), ("a", "1"), ("b", "2"), ("b", "3"), ("b", "4"), ("d", "5"), ("d", "6")]
    )
    network = network_of(tree, ["B", "d"])
    networks = of_two(network, [1, 2, 1])
    plans = [RoundPlan((None,) * 4 + (0,), 1.0)] + [RoundPlan(TWO_STEPS, 1.0, 1)] * 8
    mechanisms = mechanisms_of(networks, plans, VARIANTS[name], sizes=[100, 90, 80, 70, 60, 50, 40])
    ledger = mechanisms[0].ledger
    spent = [ledger.verified(t) for t in range(1, 10)]
    assert spent == sorted(spent)
    assert 0.98 < spent[-1] <= 1
    for kind, value in ledger.by_kind(9).items():
        assert value <= 1 or kind in {"siblings", "downlinks", "uplinks", "trusted_servers"}


def test_noise_of_a_step_keeps_to_the_weights_of_those_who_take_part(network_of):
    """K = 1 in all rounds; below the trusted server 1/4 becomes 1/2, a device's own stays."""
    network = network_of([2, 4], ["server-1-1"])
    plans = [RoundPlan(ONE_STEP, 1.0, n) for n in (0, 1, 1)]
    first, second = mechanisms_of(of_two(network, [2, 3]), plans, VARIANTS["gradient"])
    noise = dict(zip(map(tuple, first.lock_step.nodes.tolist()), first.noise.steps, strict=True))
    later = dict(zip(map(tuple, second.lock_step.nodes.tolist()), second.noise.steps, strict=True))
    assert later[1, 0] == pytest.approx(2 * noise[1, 0])
    assert later[2, 4] == pytest.approx(noise[2, 4])
    assert noise[1, 0] == pytest.approx(noise[2, 4] / 4)
    composition = first.ledger.composition(line_of(first.ledger, 0), 3)
    multiplier = noise[2, 4] / (1 / (0.1 * 100))
    assert sum(n for _, n in composition) == 3
    for law, _ in composition:
        assert law.shifts == pytest.approx((0, 1 / multiplier))


def test_what_is_in_clear_in_one_network_is_in_clear_in_the_run(network_of):
    network = network_of([2, 2], ["server-1-1"])
    plans = [RoundPlan((1, 0), 1.0, n) for n in (0, 1)]
    ledger = mechanisms_of(of_two(network, [1, 1]), plans, UPLOAD)[0].ledger
    line = line_of(ledger, 0, "siblings")
    assert ledger.composition(line, 2) == ((ShiftLaw((inf,), (1.0,)), 2),)
    assert ledger.by_kind(1)["siblings"] == inf
