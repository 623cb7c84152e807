"""Every two arms compared seed by seed."""

import math

import pytest
from tests.reporting.panel_frames import ARMS, study

from m2fdp.claims.measuring import paired_differences
from m2fdp.reporting.claim_tables import pairs_markdown


def test_differences_are_paired_by_seed_in_students_interval():
    frames = study(
        {"arm": "a", "finals": (0.5, 0.6, 0.7)}, {"arm": "b", "finals": (0.4, 0.5, 0.9, 0.1)}
    )
    (row,) = paired_differences(
        frames[0].sample(frac=1, random_state=1).sort_values("arm")
    ).to_dict("records")
    assert (row["arm"], row["arm_over"], row["seeds"]) == ("a", "b", 3)
    assert row["difference"] == pytest.approx(0.0)
    half = 4.302652729911275 * math.sqrt(0.03) / math.sqrt(3)  # of 0.1, 0.1 and -0.2
    assert (row["low"], row["high"]) == pytest.approx((-half, half))


def test_pairs_are_of_one_version_and_one_seed_is_none():
    pairs = paired_differences(ARMS[0])
    assert list(zip(pairs["version"], pairs["arm"], pairs["arm_over"], strict=True)) == [
        ("paper", "hfl", "hfl_dp"),
        ("paper", "hfl", "p1_1"),
        ("paper", "hfl_dp", "p1_1"),
        ("verified", "hfl", "p1_1"),
    ]
    single = study({"arm": "a", "finals": (0.5,)}, {"arm": "b", "finals": (0.5,)})
    assert paired_differences(single[0]).empty


def test_without_arms_algorithms_are_compared_and_points_written():
    runs, _ = study({"algorithm": "hfl", "finals": (0.8, 0.9)}, {"finals": (0.7, 0.8)})
    text = pairs_markdown(paired_differences(runs))
    assert "| HFL (no DP) | M²FDP | 2 | +10.0 | +10.0 to +10.0 |" in text
