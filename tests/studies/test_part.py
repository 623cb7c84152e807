"""What `--only` picks from a study."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.errors import InputError
from m2fdp.studies.early import part_of
from m2fdp.studies.grid import points
from m2fdp.studies.study import Study

STUDY = Study(
    title="Arms",
    versions={"paper": {"arms": ["1", "p1_1"]}, "verified": {}},
    arms={"1": {}, "p1_1": {"over": {"privacy.epsilon": [0.5, 1.0]}}, "hfl": {}},
    grid={
        "topology.trust.ratios": [[0.5], [1.0, 0.5]],
        "privacy.target": [None, 3],
        "seed": [0, 1],
    },
)


def names_of(*only):
    return [point.name for point in part_of(STUDY, only)]


def test_without_a_condition_it_is_the_whole_study():
    assert part_of(STUDY, ()) == tuple(points(STUDY))


@pytest.mark.parametrize(
    ("only", "picked"),
    [
        (["version=paper"], lambda p: p.version == "paper"),
        (["arm=hfl", "arm=p1_1"], lambda p: p.arm in ("hfl", "p1_1")),
        (["arm=1"], lambda p: p.arm == "1"),
        (["seed=1", "version=verified"], lambda p: p.values["seed"] == 1 and p.version != "paper"),
        (["privacy.epsilon=1"], lambda p: p.values.get("privacy.epsilon") == 1.0),
        (["privacy.epsilon=5e-1"], lambda p: p.values.get("privacy.epsilon") == 0.5),
        (["topology.trust.ratios=[1, 0.5]"], lambda p: len(p.values["topology.trust.ratios"]) == 2),
        (["privacy.target=null"], lambda p: p.values["privacy.target"] is None),
    ],
)
def test_values_of_a_key_add_up_and_keys_narrow(only, picked):
    expected = [point.name for point in points(STUDY) if picked(point)]
    assert expected and names_of(*only) == expected


@given(st.lists(st.sampled_from(["version=paper", "arm=hfl", "arm=1", "seed=0", "seed=1"])))
def test_the_order_of_conditions_changes_nothing(only):
    try:
        picked = names_of(*only)
    except InputError:
        picked = None
    try:
        reversed_names = names_of(*reversed(only))
    except InputError:
        reversed_names = None
    assert picked == reversed_names


@pytest.mark.parametrize(
    ("only", "parts"),
    [
        (["hfl"], ["--only = 'hfl'", "KEY=VALUE", "version, arm, privacy.epsilon"]),
        (["arms=hfl"], ["--only = 'arms'", "version, arm, privacy.epsilon", "seed"]),
        (["arm=nope"], ["--only arm = 'nope'", "1, p1_1, hfl"]),
        (["seed=0", "seed=7"], ["--only seed = '7'", "0, 1"]),
        (["seed=[0"], ["--only seed = '[0'", "0, 1"]),
        (["version=paper", "arm=hfl"], ["--only", "version=paper, arm=hfl", "no cell"]),
    ],
)
def test_what_picks_nothing_is_refused(only, parts):
    with pytest.raises(InputError) as refusal:
        part_of(STUDY, only)
    assert all(part in str(refusal.value) for part in parts), str(refusal.value)
