"""Claims judged against runs: hand-computed numbers, honest verdicts and refusals."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.claims.claim_frames import (
    GAIN,
    SAVING,
    TREND,
    frame,
    in_version,
    only,
    pairs,
    parse,
    run,
    trend_runs,
    without,
)

from m2fdp.claims.judging import JUDGED_COLUMNS, VERDICT_COLUMNS, judge, verdicts
from m2fdp.core.errors import InputError

# --- thresholds ---


def test_differences_are_paired_by_seed():
    row = only(GAIN, *pairs([0.85, 0.70, 0.95], [0.75, 0.62, 0.83]))
    assert row["mean"] == pytest.approx(0.10)
    assert row["std"] == pytest.approx(0.02)  # of 0.10, 0.08, 0.12
    assert (row["n"], row["seeds"], row["at_least"]) == (3, 3, 0.05)
    assert row["verdict"] == "holds"  # though each side by itself spreads by 0.1


# Of three seeds 0.02 apart the interval is 4.303 * 0.02 / sqrt(3) = 0.0497 to either side.
@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([-0.01, 0.0, 0.01], "holds"),  # 0 ± 0.025 between -0.03 and 0.03
        ([0.0, 0.0, 0.0], "holds"),
        ([-0.02, -0.01, 0.0], "open"),
        ([0.0, 0.02, 0.04], "open"),
        ([-0.04, 0.0, 0.04], "open"),  # beyond both
        ([0.06, 0.08, 0.10], "fails"),  # 0.08 ± 0.0497
        ([-0.07, -0.06, -0.05], "fails"),
    ],
)
def test_an_interval_between_two_thresholds(gains, verdict):
    claim = GAIN | {"at_least": -0.03, "at_most": 0.03}
    rows = pairs([0.5 + gain for gain in gains], [0.5] * len(gains))
    assert only(claim, *rows)["verdict"] == verdict


@given(st.permutations(range(8)))
def test_the_order_of_runs_does_not_matter(order):
    runs = frame(*pairs([0.1, 0.7, 0.3001, 1e-9], [0.2, 0.9, 0.01, 0.79]))
    claims = parse(GAIN)
    assert judge(claims, runs.iloc[order]).to_csv() == judge(claims, runs).to_csv()


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.08, 0.10, 0.12], "holds"),  # 0.10 ± 0.0497 against 0.05
        ([0.04, 0.06, 0.08], "in direction"),  # 0.06 ± 0.0497 is above 0
        ([0.02, 0.04, 0.06], "open"),  # from -0.01 to 0.09
        ([-0.02, 0.00, 0.02], "fails"),  # ends at 0.0497
        ([0.05, 0.05, 0.05], "in direction"),  # met, not passed
        ([0.05001, 0.05001], "holds"),
        ([0.09, 0.11], "open"),  # of two seeds 12.7 deviations over the root of two
        ([0.9], "open"),
        ([-0.9], "open"),
    ],
)
def test_verdicts_by_hand(gains, verdict):
    rows = pairs([0.5 + gain for gain in gains], [0.5] * len(gains))
    assert only(GAIN, *rows)["verdict"] == verdict
    mirrored = without(GAIN, "at_least") | {"at_most": -0.05}
    rows = pairs([0.5 - gain for gain in gains], [0.5] * len(gains))
    assert only(mirrored, *rows)["verdict"] == verdict


@pytest.mark.parametrize("bound", [{"at_least": 0.0}, {"at_most": 0.0}])
def test_two_arms_that_are_one_algorithm_tie(bound):
    claim = without(GAIN, "at_least") | bound
    assert only(claim, *pairs([0.81, 0.82, 0.83], [0.81, 0.82, 0.83]))["verdict"] == "fails"
    # Rounding is no victory either.
    assert only(claim, *pairs([0.3, 0.81], [0.1 + 0.2, 0.81]))["verdict"] == "open"


def test_reductions_by_hand():
    row = only(SAVING, *pairs([60.0, 80.0], [100.0, 160.0], "energy_to_target"))
    assert row["mean"] == pytest.approx(0.45)  # of 0.4 and 0.5
    assert row["std"] == pytest.approx(0.05 * 2**0.5)
    assert row["verdict"] == "open"  # 0.45 ± 0.64

    # A reduction of nothing is not counted.
    row = only(SAVING, *pairs([60.0, 0.0, 5.0], [100.0, 0.0, 0.0], "energy_to_target"))
    assert (row["n"], row["mean"]) == (1, pytest.approx(0.4))


def test_a_trend_over_the_size_of_the_network_takes_the_devices_of_its_fanouts():
    claim = TREND | {"measure": "accuracy", "of": {"arm": "C.1"}, "trend": "devices"}
    sizes = {"[10, 5]": (50.0, 0.8), "[2, 5]": (10.0, 0.5), "[4, 5]": (20.0, 0.6)}
    rows = [
        run("C.1", seed, accuracy, devices=devices, **{"topology.fanouts": fanouts})
        for fanouts, (devices, accuracy) in sizes.items()
        for seed in (0, 1)
    ]
    row = only(claim, *rows)
    assert (row["values"], row["verdict"]) == ((10.0, 20.0, 50.0), "holds")


# --- runs that lack something ---


def test_only_seeds_where_both_reached_the_target_are_compared():
    rows = pairs([50.0, 60.0, None, 70.0], [100.0, None, 100.0, 100.0], "energy_to_target")
    row = only(SAVING, *rows)
    assert (row["n"], row["seeds"]) == (2, 4)
    assert row["mean"] == pytest.approx(0.4)


def test_a_target_that_nobody_reaches():
    row = only(SAVING, *pairs([50.0, 60.0], [None, None], "energy_to_target"))
    assert (row["verdict"], row["n"]) == ("not reached", 0)
    assert math.isnan(row["mean"])
    claim = without(GAIN, "over", "as") | {"measure": "local_steps"}
    assert only(claim, run(local_steps=None))["verdict"] == "not reached"


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        *(([run(arm, 0)], "no finished runs") for arm in ("p1_0.5", "hfl_dp", "other")),
        ([run("p1_0.5", 0), run("hfl_dp", 1)], "no finished runs"),
    ],
)
def test_unfinished_studies(rows, verdict):
    row = only(GAIN, *rows)
    assert (row["verdict"], row["seeds"]) == (verdict, 0)
    (overall,) = verdicts(pd.DataFrame([row])).to_dict("records")
    assert overall["verdict"] == verdict


def test_seeds_that_one_side_lacks_are_left_out():
    rows = [*pairs([0.8, 0.8], [0.7, 0.7]), run("p1_0.5", 2, accuracy=0.1, verified=9.0)]
    row = only(GAIN, *rows)
    assert (row["n"], row["mean"]) == (2, pytest.approx(0.1))
    assert row["epsilon_verified"] == 0.75


# --- selection ---


def test_two_runs_of_one_seed_are_refused_with_what_tells_them_apart():
    rows = [
        run(seed=seed, **{"privacy.epsilon": epsilon, "model.name": "svm"})
        for seed in (0, 1)
        for epsilon in (1.0, 2.0)
    ]
    with pytest.raises(InputError) as refused:
        only(without(GAIN, "over", "as"), *rows)
    assert str(refused.value) == (
        "claim 'trust gains 5 points', of = {'arm': 'p1_0.5'}: selects 2 runs of seed 0; "
        "select by privacy.epsilon too"
    )

    # A run that lacks a parameter differs in it.
    rows = [run() | {"control.tau": tau} for tau in (None, 400.0)]
    with pytest.raises(InputError, match="select by control.tau too"):
        only(without(GAIN, "over", "as"), *rows)


def test_two_equal_runs_of_one_seed_are_refused():
    with pytest.raises(InputError, match="over = .* selects 2 runs of seed 0; keep one of them"):
        only(GAIN, run("p1_0.5"), run("hfl_dp"), run("hfl_dp", accuracy=0.7))
    rows = [*trend_runs((1.0, 0.0), (2.0, 0.0)), *trend_runs((1.0, 0.0), algorithm="hfl_dp")]
    with pytest.raises(InputError, match="of = .* selects 2 runs of seed 0; select by algorithm"):
        only(TREND, *rows)
    rows = [run("D5", local_steps=k) | {"control.alpha_1": None} for k in (1.0, 2.0)]
    with pytest.raises(InputError, match="selects 2 runs of seed 0; keep one of them"):
        only(TREND, *rows)


def test_measures_and_versions_that_a_study_lacks_are_refused():
    with pytest.raises(InputError, match="energy_to_target.*none of accuracy, loss$"):
        only(SAVING, *pairs([0.8], [0.7]))
    with pytest.raises(InputError, match="versions = 'paper': is none of .none in this study"):
        only(GAIN | {"versions": ["paper"]}, *pairs([0.8], [0.7]))


# --- trends ---


# Two seeds mean - std/√2 and mean + std/√2 at each value: a step of means 1.0 apart whose stds
# differ by d has the interval 1.0 ± 12.7 d / √2.
@pytest.mark.parametrize(
    ("points", "verdict"),
    [
        ([(1.0, 0.1), (2.3, 0.1), (5.1, 0.1)], "holds"),
        ([(1.0, 0.1), (3.0, 0.3), (2.95, 0.1)], "holds"),  # a step back that may be none
        ([(1.0, 0.1), (3.0, 0.1), (2.8, 0.1)], "holds"),  # 2.0 up of 2.2
        ([(1.0, 0.1), (4.0, 0.1), (2.8, 0.1)], "in direction"),  # 3.0 up of 4.2
        ([(1.0, 0.0), (2.0, 0.2)], "open"),  # 1.0 ± 1.8
        ([(1.0, 0.0), (2.0, 0.1)], "holds"),  # 1.0 ± 0.9
        ([(1.0, 0.0), (2.0, 0.0)], "holds"),
        ([(2.0, 0.0), (1.0, 0.0)], "fails"),
        ([(2.0, 0.0), (2.0, 0.0), (2.0, 0.0)], "fails"),  # computed: it does not rise
    ],
)
def test_trends_by_hand(points, verdict):
    assert only(TREND, *trend_runs(*points))["verdict"] == verdict
    mirrored = [(10.0 - mean, -std) for mean, std in points]
    assert only(TREND | {"direction": "falls"}, *trend_runs(*mirrored))["verdict"] == verdict


def test_the_values_of_a_trend_are_in_the_order_of_numbers():
    rows = trend_runs((1.0, 0.1), (2.3, 0.1), (5.1, 0.2))
    row = only(TREND, *rows[::-1])
    assert row["values"] == (1.0, 10.0, 100.0)
    assert row["means"] == pytest.approx((1.0, 2.3, 5.1))
    assert (row["mean"], row["std"]) == (pytest.approx(4.1), pytest.approx(0.1))


def test_lists_of_numbers_have_an_order():
    rows = [
        run("D5", accuracy=accuracy, **{"topology.fanouts": fanouts})
        for fanouts, accuracy in (("[10, 5]", 0.8), ("[2, 25]", 0.7), ("[2, 5]", 0.6))
    ]
    claim = TREND | {"measure": "accuracy", "trend": "topology.fanouts"}
    row = only(claim, *rows)
    assert row["verdict"] == "open"  # one seed
    assert row["values"] == ((2.0, 5.0), (2.0, 25.0), (10.0, 5.0))
    one = [run("D5", local_steps=k) | {"p": p} for k, p in ((2, "[1.0]"), (1, "[0.5]"))]
    assert only(TREND | {"trend": "p"}, *one)["values"] == (0.5, 1.0)


@pytest.mark.parametrize("value", ["svm", math.nan, "[]", "['svm']"])
def test_a_trend_over_what_has_no_order_is_refused(value):
    rows = [run("D5", local_steps=1.0) | {"x": value}, run("D5", 1, local_steps=2.0) | {"x": value}]
    with pytest.raises(InputError, match="trend = 'x'.*not a number"):
        only(TREND | {"trend": "x"}, *rows)


def test_a_trend_that_lacks_values_is_not_judged():
    assert only(TREND, *trend_runs((1.0, 0.0)))["verdict"] == "no finished runs"
    row = only(TREND, *trend_runs((1.0, 0.0), arm="D6"))
    assert (row["verdict"], row["n"]) == ("no finished runs", 0)
    rows = trend_runs((1.0, 0.0), (2.0, 0.0))
    for unmeasured in rows[2:]:
        unmeasured["local_steps"] = None
    assert only(TREND, *rows)["verdict"] == "not reached"


def test_the_seeds_of_a_trend_are_those_that_all_values_have():
    rows = trend_runs((10.0, 0.0), (20.0, 0.0))
    for row in rows:
        row["energy_to_target"] = row["local_steps"]
    claim = TREND | {"measure": "energy_to_target"}
    assert only(claim, *rows)["verdict"] == "holds"
    rows[3]["energy_to_target"] = None
    row = only(claim, *rows)
    assert (row["n"], row["seeds"], row["verdict"]) == (1, 2, "open")
    row = only(claim, rows[0], rows[3])
    assert (row["n"], row["seeds"], row["verdict"]) == (0, 0, "no finished runs")


# --- guarantees and versions ---


def test_the_largest_epsilons_of_the_private_runs_count():
    rows = [
        run("p1_0.5", 0, verified=0.7),
        run("p1_0.5", 1, verified=0.98),
        run("hfl_dp", 0, privacy="none"),
        run("hfl_dp", 1, privacy="none"),
        run("other", 0, verified=9.0),
    ]
    row = only(GAIN, *rows)
    assert (row["epsilon_verified"], row["epsilon_nominal"]) == (0.98, 1.0)
    assert row["within_nominal"]


def test_both_sides_of_a_comparison_count():
    rows = [run("p1_0.5", verified=0.5), run("hfl_dp", verified=3.0, privacy="conditional")]
    row = only(GAIN, *rows)
    assert (row["epsilon_verified"], row["within_nominal"], row["conditional"]) == (3, False, True)


@pytest.mark.parametrize("target", [1.0, None])
def test_a_private_run_without_a_bound_has_an_infinite_one(target):
    row = only(GAIN, run("p1_0.5", verified=None, epsilon_nominal=target), run("hfl_dp"))
    assert math.isinf(row["epsilon_verified"]) and not row["within_nominal"]


def test_runs_without_privacy_have_no_epsilon_to_keep():
    rows = pairs([0.8, 0.8], [0.7, 0.7], privacy="none")
    row = only(GAIN, *rows)
    assert math.isnan(row["epsilon_verified"]) and math.isnan(row["epsilon_nominal"])
    assert verdicts(judge(parse(GAIN), frame(*rows)))["verdict"].item() == "holds"


@pytest.mark.parametrize(
    ("versions", "decides", "verdict"),
    [
        ([("paper", 0.1, 24.121), ("verified", 0.1, 1.0)], "verified", "holds"),
        ([("paper", 0.0, 24.121), ("verified", 0.1, 1.0)], "verified", "holds"),
        (
            [("paper", 0.1, 24.121), ("verified", 0.0, 1.0)],
            "paper",
            "holds at ε = 24.2 (aimed at 1)",
        ),
        ([("paper", 0.1, None)], "paper", "holds at ε = ∞ (aimed at 1)"),
        ([("paper", 0.1, 1.0 + 1e-10)], "paper", "holds"),
        (
            [("paper", 0.02, 24.0), ("verified", 0.1, 1.0)],
            "paper",
            "in direction at ε = 24 (aimed at 1)",
        ),
        ([("a", 0.1, 0.9, "conditional"), ("b", 0.05, 0.9)], "a", "holds (conditional)"),
        # Where none decides the lowest does, as it does for a claim that the deciding one lacks.
        ([("many", 0.1, 1.0), ("few", 0.0, 1.0)], None, "fails"),
        ([("many", 0.1, 1.0), ("few", 0.02, 1.0)], "other", "in direction"),
    ],
)
def test_the_version_that_decides(versions, decides, verdict):
    rows = [row for version in versions for row in in_version(*version)]
    names = sorted({name for name, *_ in versions})
    judged = judge(parse(GAIN), frame(*rows), names, decides=decides)
    (overall,) = verdicts(judged).to_dict("records")
    assert tuple(overall) == VERDICT_COLUMNS
    assert overall["verdict"] == verdict


SIZE = without(GAIN, "at_least") | {"size": 0.07}


# Of three seeds 0.01 apart the interval is 4.303 * 0.01 / sqrt(3) = 0.0248 to either side.
@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.059, 0.069, 0.079], "holds"),  # 0.069 ± 0.025 meets 0.035 to 0.105
        ([0.02, 0.03, 0.04], "holds"),  # ends at 0.055
        ([0.12, 0.13, 0.14], "in direction"),  # begins at 0.1052: more than half as much again
        ([0.001, 0.002, 0.003], "fails"),  # 0.002 ± 0.0025: neither
        ([0.0, 0.02, 0.04], "open"),  # 0.02 ± 0.0497
        ([0.009, 0.010, 0.011], "in direction"),  # 0.010 ± 0.0025
        ([-0.06, -0.07, -0.08], "fails"),
        ([0.9], "open"),
    ],
)
def test_a_size_has_a_direction_and_a_tolerance(gains, verdict):
    rows = pairs([0.2 + gain for gain in gains], [0.2] * len(gains))
    assert only(SIZE, *rows)["verdict"] == verdict
    rows = pairs([0.2 - gain for gain in gains], [0.2] * len(gains))
    assert only(SIZE | {"size": -0.07}, *rows)["verdict"] == verdict
    narrow = only(SIZE | {"tolerance": 0.01}, *pairs([0.229, 0.23, 0.231], [0.2] * 3))
    assert narrow["verdict"] == "in direction"


def test_a_gain_that_is_smaller_than_claimed_is_one_in_direction():
    assert only(GAIN, *pairs([0.51, 0.52, 0.53], [0.5] * 3))["verdict"] == "fails"  # 0.02 ± 0.025
    assert only(GAIN, *pairs([0.519, 0.52, 0.521], [0.5] * 3))["verdict"] == "in direction"
    # Above a bound of its own a value has no direction.
    alone = without(GAIN, "over", "as") | {"at_least": 0.9}
    assert only(alone, run(accuracy=0.8), run(seed=1, accuracy=0.81))["verdict"] == "fails"


def test_several_looks_at_one_claim_are_corrected():
    """0.02 ± 0.0248 * 0.7 at 95 % is above 0, and at 97.5 %, for two looks, it is not."""
    claim = GAIN | {"at_least": 0.0}
    seen = pairs([0.513, 0.52, 0.527], [0.5] * 3, version="a")
    noise = pairs([0.45, 0.5, 0.56], [0.5] * 3, version="b")
    clear = pairs([0.59, 0.6, 0.61], [0.5] * 3, version="b")

    def told(*rows):
        judged = judge(parse(claim), frame(*rows), ["a", "b"][: 1 + (len(rows) > 6)])
        return judged["verdict"].tolist()

    assert told(*seen) == ["holds"]
    assert told(*seen, *noise) == ["open", "open"]
    assert told(*seen, *clear) == ["holds", "holds"]  # once the clear one is told, one is left


def test_equal_numbers_are_computed_and_no_sample():
    row = only(GAIN, *pairs([0.6] * 3, [0.5] * 3))
    assert row["computed"] and row["verdict"] == "holds"
    assert not only(GAIN, *pairs([0.6, 0.61], [0.5] * 2))["computed"]
    assert not only(GAIN, *pairs([0.6], [0.5]))["computed"]
    # Further seeds would tell nothing: a tie is no gain.
    assert only(GAIN, *pairs([0.5] * 3, [0.5] * 3))["verdict"] == "fails"
    flat = only(TREND, *trend_runs((1.0, 0.0), (1.0, 0.0)))
    assert flat["computed"] and flat["verdict"] == "fails"


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({}, "holds"),
        ({("", "p1_0.5"): 6, ("", "hfl_dp"): 6}, "holds"),
        ({("", "p1_0.5"): 6, ("", "hfl_dp"): 12}, "holds"),
        ({("", "p1_0.5"): 6, ("", "hfl_dp"): 5}, "open (the rival was tuned less)"),
        ({("", "p1_0.5"): 6}, "open (the rival was tuned less)"),
    ],
)
def test_who_is_tuned_more_than_a_rival_does_not_beat_it(counts, verdict):
    rows = pairs([0.69, 0.7, 0.71], [0.5] * 3)
    assert only(GAIN, *rows, tuned=counts)["verdict"] == verdict
    # That another leads by so much at most speaks for the one that is led.
    within = without(GAIN, "at_least") | {
        "at_most": 0.3,
        "of": {"arm": "hfl_dp"},
        "over": {"arm": "p1_0.5"},
    }
    assert only(within, *rows, tuned=counts)["verdict"] == verdict


def test_every_run_keeps_to_its_own_nominal_epsilon():
    """Else a claim over several budgets would hide what the smallest one loses."""
    rows = [
        run("D5", seed, accuracy, verified=7.75, epsilon_nominal=nominal)
        | {"privacy.epsilon": nominal}
        for nominal, accuracy in ((1.0, 0.6), (8.0, 0.7))
        for seed in (0, 1)
    ]
    claim = TREND | {"measure": "accuracy", "trend": "privacy.epsilon"}
    judged = judge(parse(claim), frame(*rows))
    assert judged["verdict"].item() == "holds"
    assert verdicts(judged)["verdict"].item() == ("holds at ε = 7.75 (aimed at 8)")


def test_versions_in_the_studys_order_and_only_those_of_the_claim():
    rows = in_version("paper", 0.1, 24.0)
    claims = parse(GAIN, SAVING | {"measure": "accuracy", "versions": ["verified"]})
    judged = judge(claims, frame(*rows), versions=["verified", "paper"])
    assert tuple(judged.columns) == JUDGED_COLUMNS
    assert judged[["claim", "version", "verdict"]].to_numpy().tolist() == [
        ["trust gains 5 points", "verified", "no finished runs"],
        ["trust gains 5 points", "paper", "holds"],
        ["control saves a quarter", "verified", "no finished runs"],
    ]
    assert judged["version"].cat.categories.tolist() == ["verified", "paper"]


def test_numbers_stay_numbers():
    judged = judge(parse(GAIN), frame(*pairs([0.8], [0.7])))
    for name in ("mean", "std", "at_least", "at_most", "epsilon_nominal", "epsilon_verified"):
        assert judged[name].dtype == float
    for name in ("n", "seeds"):
        assert judged[name].dtype == int
    for name in ("within_nominal", "conditional"):
        assert judged[name].dtype == bool

    judged = judge([], frame(run()))  # no claims
    assert list(judged.columns) == list(JUDGED_COLUMNS) and judged.empty
    assert verdicts(judged).empty
