"""What secure aggregation asks of a network, and the parts that noise is shared in."""

import numpy as np
import pytest

from m2fdp import load_config
from m2fdp.core.algorithms import build_plan
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.topology.network import OPEN, SecureSums
from m2fdp.secure_aggregation.config import SecureAggregationConfig
from m2fdp.secure_aggregation.facts import secure_sums

BASE = {
    "topology.fanouts": [10, 5],
    "topology.trust.ratios": [1.0],
    "training.local_aggregation": None,
}
SHARED = {"secure_aggregation.layers": [1], "secure_aggregation.noise": "shared"}
CLOUD = {"secure_aggregation.layers": [2], "secure_aggregation.decode": "cloud"}


def parts(*changes):
    return build_plan(load_config(BASE, *changes)).network.noise


@pytest.mark.parametrize(
    ("changes", "certain"),
    [
        ({}, 10),
        ({"secure_aggregation.dropout": 0.1}, 7),  # t = floor(2n/3) + 1
        ({"secure_aggregation.threshold": 9, "secure_aggregation.dropout": 0.1}, 9),
        ({"secure_aggregation.threshold": 9}, 10),  # nobody falls silent
        ({"secure_aggregation.threshold": 7, "threat.colluding": 3}, 4),
        ({"threat.colluding": 2}, 5),
        # Of five trusted servers among ten three may be missing, and one collude.
        ({"topology.trust.ratios": [0.5], "threat.colluding": 1}, 1),
        ({"topology.trust.ratios": [0.5]}, 5),
    ],
)
def test_heads_share_one_noise(changes, certain):
    cloud, servers, devices = parts(SHARED, changes)
    assert cloud == [0]
    adding = servers[servers > 0]
    assert adding == pytest.approx(1 / np.sqrt(certain))
    assert set(devices) <= {0.0, 1.0}


def test_devices_share_where_the_cloud_decodes_by_zone_and_by_who_takes_part():
    for changes in ({"algorithm": "hfl_dp"} | CLOUD, {"algorithm": "pedpfl"} | SHARED):
        more = {"secure_aggregation.noise": "shared", "threat.colluding": 16}
        assert parts(changes, more)[-1] == pytest.approx(1 / np.sqrt(34 - 16))
    zones = SHARED | {"algorithm": "hfl_dp", "secure_aggregation.layers": [2]}
    assert parts(zones)[2] == pytest.approx(1 / np.sqrt(5))
    assert parts(zones, {"training.participants": 3})[2] == pytest.approx(1 / np.sqrt(3))


def test_without_layers_nothing_is_summed():
    assert secure_sums(SecureAggregationConfig()) == OPEN
    assert build_plan(load_config(BASE)).network.sums is OPEN
    separate = parts({"secure_aggregation.layers": [1]})
    assert set(separate[1]) == {1.0}


def test_who_reads_and_how_many_there_are():
    sums = SecureSums(frozenset({3}), "cloud", dropout=0.1)
    assert (sums.reader_layer(3), sums.reader_layer(2)) == (0, 1)
    assert sums.least_members(np.array([3, 10, 50])).tolist() == [3, 7, 34]
    assert sums.fewest(3, np.array([50])).tolist() == [34]
    assert sums.fewest(2, np.array([50])).tolist() == [50]
    zones = build_plan(load_config(BASE, {"algorithm": "hfl_dp"} | CLOUD)).network
    assert (zones.group_sizes(2) == 50).all() and (zones.group_sizes(1) == 10).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": [3]}, r"layers = 3: is no layer of senders in this tree; valid: 1 to 2"),
        ({"layers": [1, 2], "decode": "cloud"}, "decode = 'cloud': reads one sum of one layer"),
        ({"layers": [1], "threshold": 5}, "threshold = 5: is not above half of the 10 below cloud"),
        ({"layers": [1], "threshold": 11}, "threshold = 11: is more than the 10 below cloud"),
        ({"layers": [2], "threshold": 3, "noise": "shared"}, "noise = 'shared': finds no noise"),
    ],
)
def test_what_can_t_be_summed_is_told_in_one_line(changes, words):
    given = {f"secure_aggregation.{key}": value for key, value in changes.items()}
    with pytest.raises(InputError, match=f"^secure_aggregation.{words}") as found:
        parts(given)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (SHARED | {"threat.colluding": 7}, "threshold = 'null': must be above threat.colluding"),
        (
            SHARED | {"secure_aggregation.threshold": 8, "threat.colluding": 8},
            "threshold = 8: must be above threat.colluding = 8",
        ),
        (
            # Five heads, three of whom may be missing, two collude.
            SHARED | {"topology.trust.ratios": [0.5], "threat.colluding": 2},
            "noise = 'shared': leaves no honest noise in a sum that cloud reads: of 5",
        ),
        (
            CLOUD | {"algorithm": "hfl_dp", "training.local_aggregation": {1: 2}},
            "decode = 'cloud': leaves servers nothing that they can read",
        ),
    ],
)
def test_what_hides_nothing_is_told_in_one_line(changes, words):
    with pytest.raises(InputError, match=f"^secure_aggregation.{words}") as found:
        check_config(load_config(BASE, changes))
    assert "\n" not in str(found.value)
