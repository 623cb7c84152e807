"""Trust: ratios, names, and the closure of J eq. 4."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.config import TopologyConfig, TrustConfig
from m2fdp.core.errors import InputError
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.trust import all_untrusted, build_trust, draw_trust, explicit_trust

FANOUTS = st.lists(st.integers(1, 4), min_size=2, max_size=4)


@given(FANOUTS, st.data(), st.integers(0, 99))
def test_ratios_give_closed_trust_with_the_asked_shares(fanouts, data, seed):
    tree = tree_from_fanouts(fanouts)
    share = st.floats(0, 1)
    ratios = data.draw(st.lists(share, min_size=tree.depth - 1, max_size=tree.depth - 1))
    trust = draw_trust(tree, ratios, seed)
    assert not trust[0][0]
    for layer, ratio in enumerate(ratios, start=1):
        for parent, parent_trusted in enumerate(trust[layer - 1]):
            children = trust[layer][tree.parents[layer - 1] == parent]
            if parent_trusted:
                assert children.all()
            else:
                assert children.sum() == int(ratio * len(children) + 0.5)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_trusted_sets_are_nested_in_p(p, other, seed):
    tree = tree_from_fanouts([7, 2])
    low, high = (draw_trust(tree, [ratio], seed)[1] for ratio in sorted((p, other)))
    assert not (low & ~high).any()


def test_names():
    tree = tree_from_fanouts([2, 2, 1])
    trust = explicit_trust(tree, ["server-1-0", "server-2-1"])
    assert trust[1].tolist() == [False, True]
    assert trust[2].tolist() == [True, False, True, True]
    for name, words in (
        ("server-2-3", "server-2-3.*server-1-1"),  # below a trusted server
        ("device-0", "no server of this tree"),
    ):
        with pytest.raises(InputError, match=words):
            explicit_trust(tree, [name])


def test_wrong_lengths():
    with pytest.raises(InputError, match="needs 1 number"):
        draw_trust(tree_from_fanouts([2, 2]), [0.5, 0.5], seed=0)
    with pytest.raises(InputError, match=r"needs 0 numbers, .*; write none as \[\]$"):
        draw_trust(tree_from_fanouts([4]), [0.5], seed=0)


def test_no_trust_configured_means_nobody_is_trusted():
    tree = tree_from_fanouts([2, 2])
    for built, expected in zip(
        build_trust(tree, TopologyConfig(trust=TrustConfig(ratios=None)), 0),
        all_untrusted(tree),
        strict=True,
    ):
        np.testing.assert_array_equal(built, expected)
