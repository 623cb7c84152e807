"""Devices that join rounds by chance: what is amplified, what is counted, and how much it is."""

from dataclasses import replace
from math import exp, inf, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm
from tests.builders import premises_of

from m2fdp.chance.joining import joined_unseen, of_those
from m2fdp.core.privacy.accounting import ShiftLaw, epsilon, subsampled
from m2fdp.core.privacy.calibration import build_mechanisms, moved_by_joining
from m2fdp.core.privacy.ledger import ledger_table
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, Participation, noise_plan
from m2fdp.core.topology.trust import draw_trust

H = {"mechanism": "upload", "unit": "device", "delta": 1e-5, "clipping_norm": 1.0}


def ten_zones(rate, trusted=1.0, caps=None, least_weight=None):
    tree = tree_from_fanouts([10, 4])
    trust = draw_trust(tree, [trusted], 0)
    caps = np.ones(40) if caps is None else caps
    participation = Participation(rate, caps, least_weight)
    return Network(tree, trust, noise_plan(tree, trust), participation=participation)


def joined_at_most(rounds, times, n_devices=40):
    """Who joins when: device 0 so many rounds, the others one less."""
    attendance = np.zeros((rounds, n_devices), dtype=bool)
    attendance[: times - 1] = True
    attendance[times - 1, 0] = True
    return attendance


def built(network, rounds, attendance=None, threat=None, steps=5, **privacy):
    plans = Schedule(rounds, steps, {}, 0.02, "constant").round_plans()
    premises = premises_of(network, plans, H | privacy, threat, 17)
    (mechanism,) = build_mechanisms([premises], lambda ledger: of_those(ledger, attendance))
    return mechanism


def multiplier(line):
    """Noise over the most that one device moves what is seen."""
    ((law, _),) = line.laws(line.position, Schedule(1, 5, {}, 1.0, "constant").round_plans()[0])
    return line.deviation / law.largest


@pytest.mark.parametrize(
    ("rate", "target", "z", "far", "peers", "message"),
    [(100 / 3383, 3.06, 0.955, 0.523, 3.44, 13.7), (0.2, 24.80, 0.925, 4.50, None, None)],
    ids=["EMNIST", "CIFAR-10"],
)
def test_the_bar_of_hierarchical_dp(rate, target, z, far, peers, message):
    """H's settings in T = 200 rounds, against numbers of a program of its own: the cloud, which is
    never told who joins, far devices, peers of the zone who are and saw a device join six times,
    and whoever reads such a device's own message."""
    attendance = joined_at_most(200, 6)
    mechanism = built(ten_zones(rate), 200, attendance, epsilon=target)
    lines = {line.kind: line for line in mechanism.ledger.lines}
    assert multiplier(lines["cloud"]) == pytest.approx(z, abs=0.002)
    assert multiplier(lines["siblings"]) == pytest.approx(z * sqrt(10), rel=2e-3)
    found = mechanism.ledger.by_kind(200)
    assert found["cloud"] == pytest.approx(target, rel=5e-3)
    assert found["far_devices"] == found["public"] == pytest.approx(far, rel=5e-3)
    if peers is not None:
        assert found["siblings"] == pytest.approx(peers, rel=5e-3)
        asked = {"calibration": "multiplier", "noise_multiplier": z}
        alone = built(ten_zones(rate, trusted=0.0), 200, attendance, **asked)
        assert alone.ledger.by_kind(200)["servers"] == pytest.approx(message, rel=5e-3)
    assert found["uplinks"] == inf


def test_the_table_says_what_is_counted():
    attendance = joined_at_most(20, 6)
    table = ledger_table(built(ten_zones(0.25), 20, attendance, epsilon=8).ledger, 20)
    table = table.set_index("kind")
    assert table.loc[["cloud", "siblings"], "releases"].tolist() == [20, 6]
    assert table.loc[["cloud", "siblings"], "sampling_rate"].tolist() == [0.25, 1.0]
    assert "never told who joins a round, each with chance 0.25" in table.loc["cloud", "assumption"]
    counted = "counted are 6 of 20, the most of any of these devices; 5 are expected"
    assert counted in table.loc["siblings", "assumption"]


def test_rounds_that_nobody_can_know_are_all_counted():
    """As with draws from the operating system's entropy, which come in training."""
    network, told = ten_zones(0.25), {"distrusted": ["siblings"]}
    known, unknown = (
        built(network, 20, attendance, told, epsilon=8)
        for attendance in (joined_at_most(20, 6), None)
    )
    (siblings,) = (line for line in unknown.ledger.lines if line.kind == "siblings")
    ((_, times),) = unknown.ledger.composition(siblings, 20)
    assert times == 20
    more = unknown.noise.messages[1][0] / known.noise.messages[1][0]
    assert more == pytest.approx(sqrt(20 / 6), rel=2e-3)


@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_noise_of_devices_shows_who_joins(mechanism):
    """So nothing is amplified, and of others' noise, which may not come, nothing is counted."""
    network = ten_zones(0.25, trusted=0.0)
    ledger = built(network, 20, joined_at_most(20, 6), mechanism=mechanism, epsilon=8).ledger
    assert not any(line.joins_unseen for line in ledger.lines)
    assert {line.deviation for line in ledger.lines} == {ledger.lines[0].position.noise}
    both = replace(ten_zones(0.25), noise=(np.zeros(1), np.ones(10), np.ones(40)))
    ledger = built(both, 20, joined_at_most(20, 6), epsilon=8).ledger
    assert not any(line.joins_unseen for line in ledger.lines)
    (cloud,) = (line for line in ledger.lines if line.kind == "cloud")
    share = 1 / (0.25 * 4)  # of a device's update in its zone's
    noise = cloud.position.noise
    assert cloud.deviation == pytest.approx(sqrt(noise**2 + share**2 * (noise / share) ** 2))


def test_a_round_of_several_steps_is_one_chance():
    """`gradient`, unit device: K certain steps of a round that the device joins are one Gaussian;
    records that minibatches leave out make no such law, and rounds are counted."""
    for adjacency, law, count, expected in (
        ("add_remove", subsampled(1.0), 4, subsampled(0.3, 2.0)),
        ("replace_one", subsampled(1.0), 4, None),
        ("replace_one", subsampled(1.0), 1, subsampled(0.3)),
        ("add_remove", subsampled(0.5), 4, None),
        ("add_remove", subsampled(0.5), 1, subsampled(0.15)),
    ):
        found = joined_unseen(((law, count),), 0.3, adjacency, "device")
        assert found == (expected and ((expected, 1),))
    mixed = ShiftLaw((0.0, 1.0, 2.0), (0.5, 0.25, 0.25))
    (thinned, _), *others = joined_unseen(((mixed, 1),), 0.4, "add_remove", "device")
    assert not others
    assert thinned.shifts == mixed.shifts
    assert thinned.probabilities == pytest.approx((0.8, 0.1, 0.1))


def by_quadrature(rate, shift, delta):
    """Epsilon of two releases of one round that the device joins by one chance.

    In the plane of the two only the direction of (shift, shift) tells anything.
    """

    def too_much(eps):
        def missing(x, sign):
            together = sqrt(2) * shift
            p = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - together)
            q = norm.pdf(x)
            return max(p - exp(eps) * q, 0.0) if sign else max(q - exp(eps) * p, 0.0)

        return max(quad(missing, -12, 12, (sign,), limit=400)[0] for sign in (0, 1)) - delta

    return brentq(too_much, 1e-6, 40)


@pytest.mark.parametrize(("rate", "shift"), [(0.1, 0.8), (0.5, 2.0)])
def test_epsilon_of_one_chance_by_quadrature(rate, shift):
    composition = joined_unseen(((subsampled(1.0, shift), 2),), rate, "add_remove", "device")
    found = epsilon(composition, 1e-5)
    assert found == pytest.approx(by_quadrature(rate, shift, 1e-5), rel=5e-3)


def test_the_chance_to_join_hides_no_single_record():
    """Whether one of 30 equal records is there, of a device that joins with q = 0.05 by noise of
    1.5 times what a record moves: without it the device still joins, and 29 records show that.
    So the rounds that it joins are counted for everybody; and a law with the chance, as a whole
    device has it, is below what quadrature finds here (2.24 in one round)."""
    rate, record, others = 0.05, 1 / 1.5, 29 / 1.5

    def missing(eps):
        def density(x, shift):
            return (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - shift)

        def lost(x):
            return max(density(x, others + record) - exp(eps) * density(x, others), 0.0)

        return quad(lost, -10, 30, limit=600, points=[0, others, others + record])[0] - 1e-5

    exact = brentq(missing, 1e-3, 20)
    assert exact == pytest.approx(2.237, rel=1e-3)
    assert epsilon(((subsampled(rate, record), 1),), 1e-5) < 0.4
    assert joined_unseen(((subsampled(1.0), 1),), rate, "add_remove", "record") is None
    told = epsilon(((subsampled(1.0, record), 1),), 1e-5)
    assert exact <= told
    for mechanism in ("gradient", "upload"):
        network = ten_zones(0.25)
        settings = {"unit": "record", "mechanism": mechanism, "epsilon": 8}
        ledger = built(network, 20, joined_at_most(20, 6), **settings).ledger
        releases = 6 * (5 if mechanism == "gradient" else 1)
        for line in ledger.lines:
            if line.kind in ("cloud", "siblings", "far_devices", "public"):
                assert sum(n for _, n in ledger.composition(line, 20)) == releases


def test_the_clipped_estimator_moves_by_no_more_than_is_counted():
    """The supremum of what one device moves f_c by, 2 S w / (q W_min + w): it is reached where the
    others weigh q W_min and pull the other way, and random zones stay below."""
    rng = np.random.default_rng(0)

    def moved(rate, least, own_weight, weights, others, own):
        came = weights.sum()
        without = weights @ others / max(rate * least, came)
        with_it = (weights @ others + own_weight * own) / max(rate * least, came + own_weight)
        return np.linalg.norm(with_it - without)

    for _ in range(500):
        rate, least, n = rng.uniform(0.1, 1), rng.uniform(0.1, 6), rng.integers(0, 8)
        weights, own_weight = rng.uniform(0, 1, n), rng.uniform(0.05, 1)
        vectors = rng.normal(size=(n + 1, 2))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        supremum = 2 * own_weight / (rate * least + own_weight)
        assert moved(rate, least, own_weight, weights, vectors[1:], vectors[0]) <= supremum + 1e-12
        # As many others as weigh q W_min together.
        worst = np.full(64, rate * least / 64)
        pull = np.tile([-1.0, 0.0], (64, 1))
        reached = moved(rate, least, own_weight, worst, pull, np.array([1.0, 0.0]))
        assert reached == pytest.approx(supremum)
        caps = np.full(40, own_weight)
        network = ten_zones(rate, caps=caps, least_weight=least)
        counted = moved_by_joining(network)[0] * network.weights[1][0]
        assert supremum <= counted == pytest.approx(2 * own_weight / (rate * least))


@pytest.mark.parametrize(("least_weight", "moved"), [(None, 1 / (0.25 * 4)), (3.0, 2 / (0.25 * 3))])
def test_a_multiplier_is_of_what_the_estimator_moves(least_weight, moved):
    """H Alg. 1, line 14, with public numbers: z S/(q W_i), and 2 z S/(q W_min)."""
    network = ten_zones(0.25, least_weight=least_weight)
    noise = built(network, 5, calibration="multiplier", noise_multiplier=0.7).noise
    assert noise.messages[1] == pytest.approx(np.full(10, 0.7 * moved))
    assert not noise.messages[2].any()
