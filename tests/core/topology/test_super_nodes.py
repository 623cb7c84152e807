"""Zones that elect their super-nodes: what elections stand, and what is refused in one line."""

from dataclasses import replace

import numpy as np
import pytest

from m2fdp import load_config
from m2fdp.core.algorithms import Plan, build_plan
from m2fdp.core.errors import InputError
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.secure_aggregation.facts import with_secure_sums
from m2fdp.zones.super_nodes import zone_read_in_clear

ELECTED = {"topology.super_nodes.kind": "elected"}
SUMS = {"secure_aggregation.layers": [2]}


def network_of(*changes, fanouts=(2, 10)):
    base = {"algorithm": "hfl_dp", "topology.fanouts": list(fanouts)}
    return build_plan(load_config(base, {"training.local_aggregation": None}, *changes)).network


@pytest.mark.parametrize(("m", "most"), [(10, 3), (9, 2), (2, 0)])
def test_so_many_may_collude(m, most):
    """At most (m - 1)/3."""
    assert network_of(ELECTED, {"threat.colluding": most}, fanouts=(1, m)).members_serve
    with pytest.raises(InputError) as caught:
        network_of(ELECTED, {"threat.colluding": most + 1}, fanouts=(1, m))
    assert (caught.value.key, caught.value.value) == ("threat.colluding", most + 1)
    assert f"m = {m} devices on line in zone server-1-0" in str(caught.value)


def test_those_on_line_count():
    """The zone with the fewest is named."""
    few = {"training.participants": 6, "threat.colluding": 2}
    with pytest.raises(InputError, match="m = 6 devices on line in zone server-1-0"):
        network_of(ELECTED, few)
    by_chance = {"training.participation": 0.5, "threat.colluding": 2}
    with pytest.raises(InputError, match="m = 5 devices"):
        network_of(ELECTED, by_chance)


@pytest.mark.parametrize(
    "changes", [{"topology.fanouts": [4], "topology.trust.ratios": []}, {"algorithm": "pedpfl"}]
)
def test_a_star_elects_nobody(changes):
    with pytest.raises(InputError, match="^topology.super_nodes.kind = .*a star") as caught:
        network_of(ELECTED, changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("m", range(2, 20))
def test_what_elections_stand_leaves_honest_noise_and_a_share_to_miss(m):
    """For every threshold that is a majority: more than the super-node and those who collude with
    it have shares that unmask, and somebody else adds noise."""
    most = (m - 1) // 3
    sums = SUMS | {"secure_aggregation.noise": "shared", "threat.colluding": most}
    sums |= {"secure_aggregation.dropout": 0.1}
    for threshold in range(m // 2 + 1, m + 1):
        network = network_of(
            ELECTED, sums, {"secure_aggregation.threshold": threshold}, fanouts=(1, m)
        )
        assert threshold > most + 1
        assert network.noise[-1] == pytest.approx((threshold - most - 1) ** -0.5)


@pytest.mark.parametrize(("adding", "left"), [([1, 1, 0, 0], 1), ([1, 0, 0, 0], 0)])
def test_who_reads_the_sum_may_be_the_one_who_adds_noise(adding, left):
    network = network_of(ELECTED, fanouts=(1, 4))
    network = replace(network, noise=(*network.noise[:-1], np.array(adding, dtype=float)))
    shared = load_config({"secure_aggregation.layers": [2], "secure_aggregation.noise": "shared"})
    plan = Plan(network, Schedule(1, 1, {}, 1.0, "constant"), private=True)
    if left:
        shares = with_secure_sums(plan, shared).network.noise[-1]
        assert shares.tolist() == adding
        return
    with pytest.raises(InputError, match="and the elected super-node reads it") as caught:
        with_secure_sums(plan, shared)
    assert caught.value.key == "secure_aggregation.noise"


@pytest.mark.parametrize(
    ("changes", "zone"),
    [
        ({"algorithm": "hfl_dp"}, None),
        ({"algorithm": "hdp"}, "server-1-0"),
        ({"algorithm": "cdp"}, "server-1-0"),
        ({"algorithm": "cdp", "secure_aggregation.decode": "cloud"} | SUMS, None),
        ({"algorithm": "cdp"} | SUMS, "server-1-0"),
        ({"algorithm": "m2fdp", "topology.trust.untrusted": ["server-1-0"]}, "server-1-1"),
    ],
)
def test_zones_whose_super_nodes_read_what_nobody_has_noised(changes, zone):
    assert zone_read_in_clear(network_of(ELECTED, changes)) == zone
    assert zone_read_in_clear(network_of(changes)) is None
