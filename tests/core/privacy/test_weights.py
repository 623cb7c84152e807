"""The mechanism `weights` (G): its rule, its ledger, and the least noise, against numbers that
other programs found, and against the formulas written out anew."""

from dataclasses import replace
from math import inf, log, sqrt

import numpy as np
import pytest
from tests.builders import premises_of
from tests.core.privacy.parts import epsilon_of_releases as gaussian

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.privacy.ledger import behind_own_heads, ledger_table
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan, sample_weights
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import all_but_the_cloud, all_untrusted
from m2fdp.global_dp.config import ExposuresConfig
from m2fdp.zones.table import zones_table

ROUNDS = 12
PAPER = {
    "mechanism": "weights",
    "calibration": "paper",
    "epsilon": 20.0,
    "epsilon_cloud": 25.0,
    "delta": 1e-5,
    "clipping_norm": 15.0,
}
ONE = {"uplinks": 1, "cloud_rounds": 1, "edge_uplinks": 1}


def network_of(fanouts=(5, 10), trusted=False, tree=None) -> Network:
    tree = tree or tree_from_fanouts(list(fanouts))
    trust = (all_but_the_cloud if trusted else all_untrusted)(tree)
    servers = [np.ones(tree.n_nodes(layer)) for layer in range(tree.depth)]
    return Network(tree, trust, (*servers, noise_plan(tree, trust)[-1]))


def plans_of(rounds=ROUNDS, steps=4, local=2, eta=0.5):
    return Schedule(rounds, steps, {1: local} if local else {}, eta, "constant").round_plans()


def mechanism_of(network=None, plans=None, threat=None, sizes=1200, rate=1.0, **privacy):
    """G's case A (50 devices of 1,200 records below five edge servers), unless told otherwise."""
    asked = network or network_of(), plans or plans_of(), PAPER | privacy
    return build_mechanism(premises_of(*asked, threat, sizes, rate))


def drawn(mechanism):
    """sigma_U1, sigma_U2, sigma_E, n_E, n_C of the first nodes."""
    noise = mechanism.noise
    by_cloud, *of_messages = noise.messages
    arrays = noise.local_messages[2], *reversed(of_messages), noise.broadcasts[1], by_cloud
    return [float(of_layer[0]) for of_layer in arrays]


def calibrated(network=None, target=1.0, **more):
    asked = {"calibration": "accountant", "epsilon": target, "epsilon_cloud": None}
    return mechanism_of(network, **asked, **more)


OF_ONE = [0.0060560, 0.0048448, 4.8448e-4]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, [0.14534, 0.058138, 0.0058138, 0, 0]),
        ({"exposures": ONE}, [*OF_ONE, 0.0070103, 9.1412e-4]),
        # Broadcasts get what they lack, or all of it, or nothing.
        ({"exposures": ONE, "downlink": "top_up"}, [*OF_ONE, 0.0070103, 9.1412e-4]),
        ({"exposures": ONE, "downlink": "full"}, [*OF_ONE, 0.0072672, 0.00116275]),
        ({"exposures": ONE, "downlink": "none"}, [*OF_ONE, 0, 0]),
    ],
)
def test_the_papers_noise_is_equations_4_10_and_4_11(case, expected):
    assert drawn(mechanism_of(**case)) == pytest.approx(expected, rel=5e-4, abs=1e-12)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (
            {},
            {"servers": 1.8625e6, "uplinks": 1.8625e6, "cloud": 1.7329e5}
            | {"downlinks": 5.6019e4, "siblings": 5.9440e4},
        ),
        (
            {"exposures": ONE},
            {"servers": 3.774e8, "cloud": 2.197e7, "downlinks": 2.631e6, "siblings": 2.649e6},
        ),
        (
            {"network": network_of((10, 10)), "sizes": 600, "epsilon": 10, "epsilon_cloud": 10},
            {"servers": 8.1586e4, "cloud": 7925.3, "downlinks": 2459.2, "siblings": 2653.6},
        ),
        (
            {"network": network_of(trusted=True), "exposures": {"uplinks": 0, "cloud_rounds": 0}},
            {"cloud": 2.631e6, "downlinks": 1.350e6, "siblings": 1.350e6, "uplinks": inf},
        ),
    ],
    ids=["all exposed", "one upload exposed", "100 devices", "trusted edge servers"],
)
def test_what_the_papers_noise_is_worth(case, expected):
    ledger = mechanism_of(**case).ledger
    found = ledger.by_kind(ROUNDS)
    assert {kind: found[kind] for kind in expected} == pytest.approx(expected, rel=3e-4)
    assert ledger.verified(ROUNDS) == max(found.get(kind, 0) for kind in ("servers", "cloud"))


def test_weights_by_sample_count_move_the_rule_and_the_ledger():
    tree = tree_from_fanouts([2, 3])
    sizes = np.array([100, 200, 300, 50, 50, 500])
    plain = network_of(tree=tree)
    network = Network(tree, plain.trust, plain.noise, rho=sample_weights(tree, sizes))
    mechanism = mechanism_of(network, sizes=sizes, epsilon_cloud=None)
    c, upload = sqrt(2 * log(1.25e5)), 30 / 50
    local, total, message, at_edge, _ = drawn(mechanism)
    assert (local, total) == pytest.approx((c * 24 * upload / 20, c * 12 * upload / 20))
    assert message == pytest.approx(c * 12 * upload * (500 / 600) / 20)
    shares = np.array([100, 200, 300]) / 600
    lacking = (c * 12 * upload * (500 / 600) / 20) ** 2 - (shares**2).sum() * local**2
    assert at_edge == pytest.approx(sqrt(max(lacking, 0)))
    siblings = [line for line in mechanism.ledger.lines if line.kind == "siblings"]
    of_third = next(line for line in siblings if 2 in line.position.members)
    others = shares[:2] * local
    q = 0.5
    here = q**2 * (((shares[0] * total) ** 2) + (shares[2] * total) ** 2 + message**2)
    other = np.array([50, 50, 500]) / 600
    there = q**2 * (((other * total) ** 2).sum() + mechanism.noise.messages[1][1] ** 2)
    expected = gaussian(
        (30 * 0.5, sqrt(others[0] ** 2 + (0.5 * local) ** 2 + at_edge**2), 12),
        (30 * 0.5 * q, sqrt(here + there + mechanism.noise.messages[0][0] ** 2), 12),
    )
    assert mechanism.ledger.epsilon(of_third, ROUNDS) == pytest.approx(expected, rel=1e-6)


def test_every_line_is_what_its_observer_sees_written_out():
    """An independent computation of all lines of one device, G's equations but for the rule."""
    mechanism = mechanism_of(exposures=ONE, threat={"colluding": 2})
    u1, u2, e, n_e, n_c = drawn(mechanism)
    s, n, r = 10, 5, ROUNDS
    edge = sqrt(u1**2 / s + n_e**2), sqrt(u2**2 / s + e**2)
    out = u2**2 / (s * n) + e**2 / n + n_c**2

    def of_mean(told=0):
        """What the edge server broadcasts, to who knows the noise of some of its devices."""
        return 30 / s, sqrt(edge[0] ** 2 - told * (u1 / s) ** 2), r

    def of_total(told=0):
        return 30 / 50, sqrt(out - told * (u2 / 50) ** 2), r

    downlinks = gaussian(of_mean(), of_total())
    expected = {
        "servers": gaussian((30, u1, r), (30, u2, r)),
        "cloud": min(gaussian(of_mean(), (30 / s, edge[1], r)), gaussian((30, edge[1], r))),
        "siblings": gaussian(of_mean(1), of_total(1)),
        "coalition": gaussian(of_mean(3), of_total(3)),
        "downlinks": downlinks,
        "public": min(downlinks, gaussian((30 / n, sqrt(out), r))),
        "far_devices": gaussian(of_mean(), of_total(1)),
        "uplinks_caught": gaussian((30, u2, 1)),
        "colluders": gaussian((30, u1, r), (30, u2, r)),
    }
    found = mechanism.ledger.by_kind(r)
    assert {kind: found[kind] for kind in expected} == pytest.approx(expected, rel=1e-9)
    assert found["uplinks"] == found["servers"]


def test_the_cloud_takes_the_smaller_of_two_counts():
    """With little noise on broadcasts, not to count them at all is less."""
    quiet = mechanism_of(network_of((5, 2), trusted=True), downlink="none")
    sigma = drawn(quiet)[2]
    assert quiet.ledger.by_kind(ROUNDS)["cloud"] == pytest.approx(gaussian((30, sigma, ROUNDS)))
    assert quiet.ledger.by_kind(ROUNDS)["siblings"] == inf
    loud = mechanism_of()
    both = next(line for line in loud.ledger.lines if line.kind == "cloud")
    counts = both.account.counts
    assert len(counts) == 2
    alone = [
        loud.ledger.epsilon(replace(both, account=replace(both.account, counts=(one,))), ROUNDS)
        for one in counts
    ]
    assert loud.ledger.epsilon(both, ROUNDS) == min(alone) < max(alone)


def tree_of(children) -> Tree:
    parents = (np.zeros(len(children), dtype=int), np.repeat(np.arange(len(children)), children))
    edges, devices = (
        tuple(f"{at} {i}" for i in range(len(p))) for at, p in zip("ed", parents, strict=True)
    )
    return Tree(parents, (("cloud",), edges, devices))


@pytest.mark.parametrize("n_edges", [8, 17])
def test_where_no_noise_is_left_there_is_no_residue_of_a_difference(n_edges):
    """All noise in what an observer reads is known to it: what is left is 0, not 1e-17 of that."""
    changes = {"downlink": "none", "exposures": {"edge_uplinks": 0}, "epsilon": 5.0}
    tree = tree_of(range(1, n_edges + 1))
    trust = (np.array([False]), np.arange(n_edges) % 3 == 0)
    network = Network(tree, trust, (np.ones(1), np.ones(n_edges), noise_plan(tree, trust)[-1]))
    ledger = mechanism_of(network, **changes).ledger
    of_trusted = {line.position for line in ledger.lines if line.kind == "trusted_servers"}
    servers = [x for x in ledger.lines if x.kind == "servers" and x.position in of_trusted]
    assert {ledger.epsilon(line, ROUNDS) for line in servers} == {inf}

    tree = tree_of([11, 10, 3])
    devices = (np.arange(24) % 2).astype(float)  # every other one adds none of its own
    network = Network(tree, all_but_the_cloud(tree), (np.zeros(1), np.ones(3), devices))
    threat = {"distrusted": ["siblings"], "colluding": 5}
    ledger = mechanism_of(network, threat=threat, **changes).ledger
    told = [line for line in ledger.lines if line.kind == "coalition"]
    quiet = [line for line in told if not devices[line.position.members[0]]]
    assert {ledger.epsilon(line, ROUNDS) for line in quiet} == {inf}


def test_a_coalition_of_siblings_is_distrusted_where_siblings_are():
    threat = {"distrusted": ["siblings"], "colluding": 4}
    ledger = mechanism_of(threat=threat).ledger
    assert {"coalition", "siblings", "colluders"} <= ledger.distrusted
    alone = mechanism_of(threat={"distrusted": ["siblings"]}).ledger
    found = ledger.by_kind(ROUNDS)
    assert found["coalition"] > found["siblings"] == alone.by_kind(ROUNDS)["siblings"]
    told = {line.observer for line in ledger.lines if line.kind == "coalition"}
    assert told == {"5 devices of the same server, together"}


def test_nodes_that_are_missing_protect_nobody():
    """As under deployment.on_missing: skip, which counts on nobody's noise but the head's own."""
    ledger = calibrated(target=4.0, threat={"distrusted": ["cloud"]}).ledger
    without = behind_own_heads(ledger).verified(ROUNDS)
    assert without == ledger.pooled(ROUNDS) > 1.5 * ledger.verified(ROUNDS)


def test_caught_uplinks_are_a_line_and_never_what_is_verified():
    mechanism = mechanism_of(exposures=ONE, threat={"open_links": ["uplinks", "downlinks"]})
    found = mechanism.ledger.by_kind(ROUNDS)
    assert found["uplinks_caught"] == pytest.approx(gaussian((30, 0.0048448, 1)), rel=1e-3)
    assert found["uplinks_caught"] < found["uplinks"] == mechanism.epsilon(ROUNDS)
    assert not {"uplinks_caught", "downlinks_caught"} & mechanism.ledger.distrusted
    caught = mechanism_of(exposures={"downlinks": 2, "cloud_downlinks": 1, **ONE})
    u1, u2, e, n_e, n_c = drawn(caught)
    seen = (30, sqrt(u1**2 / 10 + n_e**2), 2), (30, sqrt(u2**2 / 50 + e**2 / 5 + n_c**2), 1)
    found = caught.ledger.by_kind(ROUNDS)
    least = min(gaussian(*seen), found["downlinks"])
    assert found["downlinks_caught"] == pytest.approx(least)


def test_who_catches_uplinks_catches_those_before_global_aggregations_too():
    """sigma_2 is less than sigma_1: left out of t_3 they would count with the wrong noise."""
    unsaid = mechanism_of(exposures={"uplinks": 13}).ledger  # t_3 = 12, every global one
    assert "uplinks_caught" not in unsaid.by_kind(ROUNDS)
    said = mechanism_of(exposures={"uplinks": 13, "cloud_rounds": 12})
    u1, u2, *_ = drawn(said)
    found = said.ledger.by_kind(ROUNDS)["uplinks_caught"]
    assert found == pytest.approx(gaussian((30, u1, 1), (30, u2, 12)), rel=1e-3)


def test_minibatches_that_never_draw_a_record_move_nothing():
    """At rate q a stretch of n steps moves a model with 1 - (1-q)^n."""
    mechanism, whole = calibrated(rate=0.01), calibrated()
    line = next(line for line in mechanism.ledger.lines if line.kind == "servers")
    laws = {law for law, _ in mechanism.ledger.composition(line, ROUNDS)}
    assert [law.moved for law in laws] == [pytest.approx(1 - 0.99**2)]
    assert drawn(mechanism)[0] < 0.3 * drawn(whole)[0]
    cloud = next(line for line in mechanism.ledger.lines if line.kind == "cloud")
    (shown,) = cloud.account.counts[1].shown({plans_of()[0]: 3})
    ((law, _),) = shown.laws
    assert law.moved == pytest.approx(1 - 0.99**4)
    device = mechanism_of(rate=0.01, unit="device").ledger
    assert device.by_kind(ROUNDS) == mechanism_of().ledger.by_kind(ROUNDS)


def test_a_replaced_record_moves_a_model_no_further():
    one, other = (mechanism_of(adjacency=name) for name in ("add_remove", "replace_one"))
    assert one.ledger.by_kind(ROUNDS) == pytest.approx(other.ledger.by_kind(ROUNDS), rel=1e-12)
    sampled = mechanism_of(adjacency="replace_one", rate=0.01)
    assert sampled.ledger.by_kind(ROUNDS) == other.ledger.by_kind(ROUNDS)  # nothing is credited


def test_positions_are_told_apart_by_local_noise_too():
    """Edge servers of unequal size, where what is sent to the cloud carries no noise."""
    silent = {"cloud_rounds": 0, "edge_uplinks": 0, "uplinks": 1}
    ledger = mechanism_of(network_of(tree=tree_of([2, 5])), exposures=silent).ledger
    members = {line.position.members for line in ledger.lines}
    assert members == {(0, 1), (2, 3, 4, 5, 6)}


def test_the_table_shows_each_line_with_its_worst_release():
    mechanism = mechanism_of()
    table = ledger_table(mechanism.ledger, ROUNDS).set_index("kind")
    assert table.loc["servers", "releases"] == 24
    assert table.loc["servers", "largest_shift"] == pytest.approx(30)
    assert table.loc["servers", "noise"] == pytest.approx(0.058138, rel=1e-4)
    assert table["epsilon"].notna().all()
    assert zones_table(network_of(), mechanism, ROUNDS, PrivacyConfig(**PAPER)).empty


def test_who_pools_knows_all_but_the_noise_on_the_path():
    mechanism = mechanism_of(exposures=ONE, threat={"distrusted": ["siblings", "public"]})
    ledger, (u1, u2, e, n_e, n_c) = mechanism.ledger, drawn(mechanism)
    local, total = (u1 / 10) ** 2 + n_e**2, ((u2 / 10) ** 2 + e**2) / 25 + n_c**2
    expected = gaussian((3, sqrt(local), ROUNDS), (30 / 50, sqrt(total), ROUNDS))
    assert ledger.pooled(ROUNDS) == pytest.approx(expected, rel=1e-9)
    assert ledger.pooled(ROUNDS) > ledger.verified(ROUNDS)


@pytest.mark.parametrize(("target", "multiplier"), [(1.0, 18.281), (8.0, 2.9412), (20.0, 1.4213)])
def test_the_least_noise_of_24_releases(target, multiplier):
    mechanism = calibrated(target=target)
    local, total, *servers = drawn(mechanism)
    assert local == total == pytest.approx(30 * multiplier, rel=1e-3)
    assert servers == [0, 0, 0]
    assert 0.99 * target < mechanism.epsilon(ROUNDS) <= target


def test_trusted_edge_servers_need_a_tenth():
    mechanism = calibrated(network_of(trusted=True))
    local, total, message, broadcast, cloud = drawn(mechanism)
    assert (local, total, cloud) == (0, 0, 0)
    assert message == broadcast == pytest.approx(3 * 18.281, rel=1e-3)
    assert mechanism.epsilon(ROUNDS) <= 1


def test_where_broadcasts_alone_are_heard_servers_noise_them_and_devices_nothing():
    threat = {"distrusted": ["siblings", "far_devices", "public"], "open_links": ["downlinks"]}
    mechanism = calibrated(threat=threat)
    local, total, message, at_edge, at_cloud = drawn(mechanism)
    assert (local, total, message) == (0, 0, 0)
    # As many releases, each over the same multiple of what it moves by.
    assert (at_edge, at_cloud) == pytest.approx((3 * 18.281, 0.6 * 18.281), rel=1e-3)
    assert 0.99 < mechanism.epsilon(ROUNDS) <= 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calibration": "multiplier", "noise_multiplier": 1.0}, "multiplier is not defined"),
        ({"clip": "per_layer", "unit": "device"}, "per_layer is not defined"),
        ({"exposures": {"uplinks": 25}}, "privacy.exposures.uplinks = 25: .* 24"),
        ({"exposures": {"downlinks": 13}}, "privacy.exposures.downlinks = 13: .* 12"),
        ({"exposures": {"cloud_downlinks": 13}}, "privacy.exposures.cloud_downlinks = 13"),
        ({"exposures": {"uplinks": 1}}, "cloud_rounds = 12: .* caught, 1"),
        ({"exposures": {"uplinks": 14, "cloud_rounds": 1}}, "uplinks = 14: leaves 13 .* 12 others"),
        ({"network": network_of((5, 2, 2))}, "privacy.mechanism = 'weights': .*3 tiers"),
        ({"network": network_of((5,))}, "privacy.mechanism = 'weights': .*1 tiers"),
    ],
)
def test_what_is_not_defined_is_refused_in_one_line(changes, words):
    with pytest.raises(InputError, match=words) as refused:
        mechanism_of(**changes)
    assert "\n" not in str(refused.value)


def test_exposures_are_every_one_of_the_schedule_unless_said():
    said = {"uplinks": 24, "downlinks": 12, "cloud_rounds": 12, "edge_uplinks": 12}
    assert drawn(mechanism_of()) == drawn(mechanism_of(exposures=said | {"cloud_downlinks": 12}))
    assert set(ExposuresConfig.model_fields) == {*said, "cloud_downlinks"}
