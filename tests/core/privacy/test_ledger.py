"""Which lines a ledger has, the noise of each by hand, and what it adds up to; one ledger for
rounds that differ in who takes part."""

from dataclasses import replace
from math import inf, sqrt
from time import perf_counter

import numpy as np
import pytest
from tests.builders import premises_of
from tests.core.privacy.parts import PAPER, mechanism_of, network_of, plans_of

from m2fdp.core.errors import InputError
from m2fdp.core.privacy import releases
from m2fdp.core.privacy.accounting import ShiftLaw, epsilon, subsampled
from m2fdp.core.privacy.calibration import build_mechanisms
from m2fdp.core.privacy.ledger import (
    _over_noise,
    build_ledger,
    epsilon_over_rounds,
    ledger_table,
    undominated,
)
from m2fdp.core.privacy.releases import AlikeRounds
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.given.edges import tree_from_edges

UPLOAD = {"mechanism": "upload", "epsilon": 1, "delta": 1e-5, "clipping_norm": 1}


def ledger_of(network, noise, plans, units=1.0, rates=0.1):
    premises = premises_of(network, plans, UPLOAD, None, 1, rates)
    return build_ledger(premises, noise, np.broadcast_to(units, network.tree.n_devices))


def test_the_worked_example_of_the_rule_s_own_page():
    noise = [np.zeros(1), np.zeros(2), np.full(6, 6.0)]
    ledger = ledger_of(network_of([2, 3], BOTH), noise, plans_of(4, 1), units=2.0, rates=1.0)
    found = {line.kind: line for line in ledger.lines}
    for kind, deviation in (("siblings", sqrt(18)), ("servers", 3.0)):
        line = found[kind]
        assert line.deviation == pytest.approx(deviation)
        ((law, times),) = ledger.composition(line, 4)
        assert law.largest * sqrt(times) == pytest.approx(2 / deviation)
        for number in (2 / deviation, ledger.epsilon(line, 4)):
            assert f" {number:.3f}" in releases.__doc__


ROOT3, BOTH = sqrt(3), ["server-1-0", "server-1-1"]
SIX = tree_from_edges([("c", "A"), ("c", "B"), *(("A", x) for x in "123"), ("B", "4")])
OF_SIX = SIX, ["A", "B"], (0, 0, [1, 2, 4, 3]), {}
FAR = ("cloud", "far_devices", "public", "downlinks")
# Tree, untrusted servers, what is added at each layer (or by each node) and where models go by the
# way; of which device, its line's deviation by kind, in the unit of its head's message. None = it
# has no such line.
LINES = {
    "a device below an untrusted server": (
        *([4, 3], BOTH, (0, [0, 0, 1, 1], [1] * 6 + [0] * 6), {1: 2}, 0),
        {"servers": 1, "uplinks": 1, "siblings": sqrt(2)} | dict.fromkeys(FAR, ROOT3),
    ),
    # Only the two trusted servers noise; those of devices elsewhere are not counted.
    "a device below a trusted server": (
        *([4, 3], BOTH, (0, [0, 0, 1, 1], [1] * 6 + [0] * 6), {1: 2}, 6),
        {"cloud": 1, "servers": sqrt(2), "far_devices": sqrt(2), "public": sqrt(2)}
        | dict.fromkeys(("siblings", "downlinks", "uplinks", "trusted_servers"), 0),
    ),
    "a star has no servers and nobody elsewhere": (
        *([5], [], (0, 1), {}, 0),
        {"cloud": 1, "uplinks": 1, "siblings": 2, "public": sqrt(5), "downlinks": sqrt(5)}
        | dict.fromkeys(("servers", "far_devices"), None),
    ),
    # The mean at the parent holds what siblings add; the loudest of them knows its own.
    "the quietest": (*OF_SIX, 0, {"siblings": sqrt(5), "cloud": sqrt(21)}),
    "the loudest": (*OF_SIX, 2, {"siblings": sqrt(17), "cloud": sqrt(21)}),
    "an only child": (*OF_SIX, 3, {"siblings": None, "cloud": 3}),
    # Siblings of the head hide what passes its parent, never what the head broadcasts.
    "broadcasts that are not noised": (
        *([1, 4, 2], BOTH[:1], (0, 0, 3, 0), {2: 2}, 0),
        dict.fromkeys(FAR[:3], 6),
    ),
    # Devices that noise although their server is trusted: nobody else sees their messages.
    "noise below a trusted parent": (
        *([2, 4], [], (0, 0, 3), {1: 2}, 0),
        {"trusted_servers": 3, "uplinks": 3, "cloud": 6, "public": 6, "siblings": 3 * ROOT3},
    ),
    # A fourth of the device's noise is in the head's message, from each of four.
    "noise below a trusted head that noises": (
        *([2, 4], [], (0, 1, 2), {}, 0),
        {"cloud": sqrt(1 + 1), "siblings": sqrt(1 + 3 / 4)},
    ),
    # The server's noise is over the device's share in its mean, 1/3.
    "a server noises every release": (
        *([2, 3], BOTH, (0, 1, 1), {}, 0),
        {"servers": 1, "siblings": sqrt(2 + 9)} | dict.fromkeys(FAR, sqrt(3 + 9)),
    ),
    "a server noises one of several releases": (
        *([2, 3], BOTH, (0, 1, 1), {1: 1}, 0),
        {"servers": 1, "siblings": sqrt(2)} | dict.fromkeys(FAR, ROOT3),
    ),
    "the cloud's noise protects from all but cloud and servers": (
        *([2, 3], BOTH, (1, 0, 1), {}, 0),
        {"servers": 1, "uplinks": 1, "siblings": sqrt(2 + 36)}
        | dict.fromkeys(FAR, sqrt(3 + 36))
        | {"cloud": ROOT3},
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_by_hand(case):
    tree, untrusted, added, local_aggregation, device, expected = LINES[case]
    network = network_of(tree, untrusted)
    noise = [
        np.broadcast_to(np.asarray(of_layer, float), network.tree.n_nodes(layer))
        for layer, of_layer in enumerate(added)
    ]
    network = replace(network, noise=tuple(noise))
    ledger = ledger_of(network, noise, plans_of(2, 4, local_aggregation))
    found = {x.kind: x.deviation for x in ledger.lines if device in x.position.members}
    assert {kind: found.get(kind) for kind in expected} == pytest.approx(expected)


def test_synchronised_siblings_are_infinite_and_stay():
    clear, quiet = (
        ledger_table(mechanism_of(network_of([2, 3]), plans_of(2, 4, local)).ledger, 2)
        for local in ({1: 2}, {})
    )
    infinite = set(clear.kind[clear.epsilon == inf])
    assert infinite == {"siblings", "downlinks", "uplinks", "trusted_servers"}
    # Without local aggregation siblings see no more than the cloud's broadcast.
    assert set(quiet.kind[quiet.epsilon == inf]) == {"uplinks", "trusted_servers"}
    assert len(clear) == len(quiet)
    assert not clear.epsilon.isna().any()


def test_cousins_are_devices_elsewhere_that_receive_un_noised_models():
    """Two servers below each trusted one of layer 1: whose model, in clear, reaches both."""
    network = network_of([2, 2, 5])

    def epsilons(local_aggregation, **more):
        more = {"threat": {"distrusted": ["cloud"]}} | more
        plans = plans_of(3, 4, local_aggregation)
        return mechanism_of(network, plans, calibration="accountant", **more).ledger.by_kind(3)

    below_both = epsilons({1: 2})
    assert below_both["cousins"] == inf > below_both["far_devices"]
    # Aggregations below one of the servers tell the other's devices nothing.
    for below_one in (epsilons({2: 2}), epsilons({})):
        assert below_one["cousins"] == below_one["far_devices"] < 1
    assert epsilons({1: 2}, mechanism="gradient")["cousins"] <= 1
    # Who distrusts devices elsewhere distrusts these.
    with pytest.raises(InputError, match=r"can't be met for .*below the same head.*cousins"):
        epsilons({1: 2}, threat={"distrusted": ["far_devices"]})
    assert "cousins" not in mechanism_of(network_of([2, 5]), plans_of(1, 1)).ledger.by_kind(1)


def test_verified_is_the_largest_over_the_distrusted():
    network = network_of([4, 3], ["server-1-0"])
    plans = plans_of(5, 4, {1: 2})
    for kinds in (["cloud"], ["servers", "far_devices"], ["public"]):
        ledger = mechanism_of(network, plans, threat={"distrusted": kinds}).ledger
        table = ledger_table(ledger, 5)
        assert set(table.kind[table.distrusted]) == set(kinds)
        assert ledger.verified(5) == table.epsilon[table.distrusted].max()
        for kind, value in ledger.by_kind(5).items():
            assert value == table.epsilon[table.kind == kind].max()
    siblings = mechanism_of(network, plans, threat={"distrusted": ["siblings"]}).ledger
    assert siblings.verified(5) == inf


def test_a_threat_of_nobody_is_refused():
    """Epsilon over no observers would be 0."""
    threat = {"distrusted": ["servers"]}
    for calibration in ("paper", "accountant"):
        with pytest.raises(InputError, match=r"threat.distrusted = 'servers': are nobody"):
            mechanism_of(network_of([5]), plans_of(2, 2), calibration=calibration, threat=threat)


def test_rounds_of_changing_length_and_step_size():
    """The controller changes K and eta; each round's windows enter with their own law."""
    short, long = RoundPlan((None, 0), 0.1), RoundPlan((None, 1, None, None, 0), 0.05)
    noise = [np.zeros(1), np.zeros(2), np.full(4, 30.0)]
    ledger = ledger_of(network_of([2, 2], BOTH), noise, (short, long, short))
    line = ledger.lines[0]
    counts = {law.largest * 30: count for law, count in ledger.composition(line, 3)}
    # Two steps: both short rounds and the long one's first window; three: its second window.
    assert counts == pytest.approx({2.0: 3, 3.0: 1})
    assert ledger.epsilon(line, 3) == epsilon(ledger.composition(line, 3), 1e-5)
    spent = [ledger.verified(t) for t in range(4)]
    assert spent[0] == 0 and spent == sorted(spent)


def test_epsilon_over_rounds_grows_and_ends_at_the_ledger_s():
    ledger = mechanism_of(network_of([3, 2], ["server-1-0"]), plans_of(30, 2)).ledger
    table = epsilon_over_rounds(ledger, 30)
    assert table["round"].iloc[[0, -1]].tolist() == [1, 30]
    assert table["cloud"].is_monotonic_increasing
    assert table["cloud"].iloc[-1] == ledger.by_kind(30)["cloud"]


@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_ten_thousand_devices_in_seconds(mechanism):
    network = network_of([100, 100], [f"server-1-{i}" for i in range(50)])
    start, calibration = perf_counter(), "paper" if mechanism == "upload" else "accountant"
    asked = {"calibration": calibration, "mechanism": mechanism}
    built = mechanism_of(network, plans_of(200, 20), **asked)
    assert built.epsilon(200) > 0
    assert perf_counter() - start < 10
    found = {line.position for line in built.ledger.lines}
    assert sorted(len(p.members) for p in found) == [5000, 5000]


def test_dominated_compositions_are_the_ones_left_out():
    noisy, rare, worst = subsampled(0.5, 1.0), subsampled(0.1, 2.0), subsampled(0.5, 2.0)
    mixture = ShiftLaw((0.0, 1.0, 2.0), (0.8, 0.1, 0.1))
    # All its mass moves, but hardly any of it far: it does not dominate `noisy`.
    uneven = ShiftLaw((0.01, 3.0), (1 - 1e-9, 1e-9))
    every = {((law, 10),) for law in (noisy, rare, worst, mixture, uneven)}
    assert set(undominated(every)) == {((law, 10),) for law in (worst, mixture, uneven)}
    assert set(undominated({((noisy, 10),), ((rare, 10),)})) == {((noisy, 10),), ((rare, 10),)}
    assert len(undominated({((noisy, 10),), ((noisy, 11),)})) == 2


@pytest.mark.parametrize(
    ("shift", "times", "expected"),
    [(0.0, 3, 0.0), (1.0, 0, 0.0), (1.0, 1, inf)],
    ids=["moved by nothing", "never released", "in clear"],
)
def test_only_what_is_released_and_moved_is_in_clear(shift, times, expected):
    (plan,) = plans_of(1, 1)
    shown = [AlikeRounds(plan, ((ShiftLaw((shift,), (1.0,)), 1),), times, 0.0)]
    assert epsilon(_over_noise(shown), 1e-5) == expected


GRADIENT = UPLOAD | {"mechanism": "gradient"}
VARIANTS = {"gradient": GRADIENT, "device": GRADIENT | {"unit": "device"}, "upload": UPLOAD}
TWO_STEPS = (None, 0)


def mechanisms_of(network, present, plans, privacy=PAPER, rate=0.1, sizes=100):
    """Over a network of all, and one of so many devices of each lowest server."""
    given = plans, privacy, None, sizes, rate
    networks = [network, replace(network, participants=np.array(present))]
    return build_mechanisms([premises_of(network, *given) for network in networks])


def line_of(ledger, device, kind="cloud"):
    (line,) = [x for x in ledger.lines if x.kind == kind and device in x.position.members]
    return line


def test_each_round_enters_with_the_shares_and_the_noise_of_its_network():
    """Devices 0…3 below a trusted server, 4…7 below an untrusted one; one round of all, then two
    of two devices each, K = 2, q = 1/2. Prop. 1: sigma = alpha q Delta sqrt(K T ln(1/delta)),
    Delta = 2 K G / s, with s = 4 and then 2 at the trusted server, and 1 at a device.

    A record first drawn at step 1 moves the trusted server's model by 2·2G/s, at step 2 by 2G/s.
    """
    plans = [RoundPlan(TWO_STEPS, 1.0, network) for network in (0, 1, 1)]
    first, second = mechanisms_of(network_of([2, 4], BOTH[1:]), [2, 2], plans, rate=0.5)
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


@pytest.mark.parametrize(
    "name", ["gradient", "device", pytest.param("upload", marks=pytest.mark.full)]
)
def test_the_whole_run_meets_the_target_and_wastes_little(name):
    tree = tree_from_edges(
        [("c", "A"), ("c", "B"), ("A", "a"), ("A", "b"), ("B", "d")]
        + [("a", "0"), ("a", "1"), ("b", "2"), ("b", "3"), ("b", "4"), ("d", "5"), ("d", "6")]
    )
    plans = [RoundPlan((None,) * 4 + (0,), 1.0)] + [RoundPlan(TWO_STEPS, 1.0, 1)] * 8
    asked = network_of(tree, ["B", "d"]), [1, 2, 1], plans, VARIANTS[name]
    ledger = mechanisms_of(*asked, sizes=[100, 90, 80, 70, 60, 50, 40])[0].ledger
    spent = [ledger.verified(t) for t in range(1, 10)]
    assert spent == sorted(spent)
    assert 0.98 < spent[-1] <= 1
    for kind, value in ledger.by_kind(9).items():
        assert value <= 1 or kind in {"siblings", "downlinks", "uplinks", "trusted_servers"}


def test_noise_of_a_step_keeps_to_the_weights_of_those_who_take_part():
    """K = 1 in all rounds; below the trusted server 1/4 becomes 1/2, a device's own stays."""
    plans = [RoundPlan((0,), 1.0, n) for n in (0, 1, 1)]
    first, second = mechanisms_of(network_of([2, 4], BOTH[1:]), [2, 3], plans, GRADIENT)
    noise, later = (
        dict(zip(map(tuple, each.lock_step.nodes.tolist()), each.noise.steps, strict=True))
        for each in (first, second)
    )
    assert later[1, 0] == pytest.approx(2 * noise[1, 0])
    assert later[2, 4] == pytest.approx(noise[2, 4])
    assert noise[1, 0] == pytest.approx(noise[2, 4] / 4)
    composition = first.ledger.composition(line_of(first.ledger, 0), 3)
    multiplier = noise[2, 4] / (1 / (0.1 * 100))
    assert sum(n for _, n in composition) == 3
    for law, _ in composition:
        assert law.shifts == pytest.approx((0, 1 / multiplier))


def test_what_is_in_clear_in_one_network_is_in_clear_in_the_run():
    plans = [RoundPlan((1, 0), 1.0, n) for n in (0, 1)]
    ledger = mechanisms_of(network_of([2, 2], BOTH[1:]), [1, 1], plans)[0].ledger
    line = line_of(ledger, 0, "siblings")
    assert ledger.composition(line, 2) == ((ShiftLaw((inf,), (1.0,)), 2),)
    assert ledger.by_kind(1)["siblings"] == inf
