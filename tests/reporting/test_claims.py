"""Claims of a paper: hand-computed judgements, honest verdicts and refusals."""

from __future__ import annotations

import io
import math
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from m2fdp.errors import InputError
from m2fdp.reporting.claims import (
    JUDGED_COLUMNS,
    VERDICT_COLUMNS,
    Claim,
    ThresholdClaim,
    TrendClaim,
    check_claims,
    judge,
    measured_text,
    print_claims,
    to_markdown,
    verdicts,
)

GAIN = {
    "claim": "trust gains 5 points",
    "source": "J Sec. VI-B.1",
    "paper": "+ 5 points",
    "measure": "accuracy",
    "of": {"arm": "p1_0.5"},
    "over": {"arm": "hfl_dp"},
    "as": "difference",
    "at_least": 0.05,
}
SAVING = GAIN | {
    "claim": "control saves a quarter",
    "measure": "energy_to_target",
    "as": "reduction",
    "at_least": 0.25,
}
TREND = {
    "claim": "K rises with alpha_1",
    "source": "J Sec. VI-D.3",
    "paper": "K rises",
    "measure": "local_steps",
    "of": {"arm": "D5"},
    "trend": "control.alpha_1",
    "direction": "rises",
}


def parse(*claims: dict) -> list[ThresholdClaim | TrendClaim]:
    return TypeAdapter(list[Claim]).validate_python(list(claims))


def without(claim: dict, *keys: str) -> dict:
    return {key: value for key, value in claim.items() if key not in keys}


def run(arm="p1_0.5", seed=0, accuracy=0.8, privacy="verified", verified=0.75, **other) -> dict:
    private = privacy != "none"
    return {
        "algorithm": "m2fdp",
        "seed": seed,
        "role": "method",
        "privacy": privacy,
        "accuracy": accuracy,
        "loss": 1.0,
        "epsilon_nominal": 1.0 if private else None,
        "epsilon_verified": verified if private else None,
        "energy_j": 1.0,
        "delay_s": 1.0,
        "arm": arm,
        **other,
    }


def frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(rows)


def pairs(ours: list[float], theirs: list[float], measure="accuracy", **other) -> list[dict]:
    sides = (("p1_0.5", ours), ("hfl_dp", theirs))
    return [
        run(arm, seed, **({measure: value} | other))
        for arm, values in sides
        for seed, value in enumerate(values)
    ]


def course(*means: tuple[float, float], arm="D5", **other) -> list[dict]:
    """Runs of two seeds with that mean and sample standard deviation of K at each value."""
    return [
        run(arm, seed, **{"control.alpha_1": 10.0**i, "local_steps": mean + sign * std / 2**0.5})
        | other
        for i, (mean, std) in enumerate(means)
        for seed, sign in enumerate((-1, 1))
    ]


def only(claim: dict, *rows: dict, **options: Any) -> dict:
    """The one row of a claim in one version."""
    (row,) = judge(parse(claim), frame(*rows), **options).to_dict("records")
    return row


# --- the claims themselves ---


def test_yaml_makes_claims_of_both_kinds():
    text = """
    - claim: trust gains 5 points
      source: J Sec. VI-B.1
      paper: + 5 points
      measure: accuracy
      of: {arm: p1_0.5}
      over: {arm: hfl_dp}
      as: difference
      at_least: 0.05
    - claim: K rises with alpha_1
      source: J Sec. VI-D.3
      paper: K rises
      measure: local_steps
      of: {arm: D5}
      trend: control.alpha_1
      direction: rises
    """
    assert TypeAdapter(list[Claim]).validate_python(yaml.safe_load(text)) == [
        ThresholdClaim.model_validate(GAIN),
        TrendClaim.model_validate(TREND),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (GAIN | {"at_most": 0.1}, "exactly one"),
        (without(GAIN, "at_least"), "exactly one"),
        (without(GAIN, "as"), "belong together"),
        (without(GAIN, "over"), "belong together"),
        (GAIN | {"as": "ratio"}, "'difference' or 'reduction'"),
        (GAIN | {"at_least": math.inf}, "finite"),
        (GAIN | {"versions": []}, "at least 1 item"),
        (GAIN | {"about": 0.05}, "Extra inputs"),
        (TREND | {"at_least": 1.0}, "Extra inputs"),
        (without(TREND, "direction"), "direction"),
        (without(TREND, "trend"), "trend"),
        (TREND | {"direction": "up"}, "'rises' or 'falls'"),
        (TREND | {"of": {"control.alpha_1": 1.0}}, "of fixes control.alpha_1"),
        (without(GAIN, "source"), "source"),
    ],
)
def test_claims_that_cannot_be_meant(wrong, message):
    with pytest.raises(ValidationError, match=message):
        parse(wrong)


# --- thresholds ---


def test_differences_are_paired_by_seed():
    row = only(GAIN, *pairs([0.80, 0.90, 0.85], [0.70, 0.82, 0.79]))
    assert row["mean"] == pytest.approx(0.08)
    assert row["std"] == pytest.approx(0.02)  # of 0.10, 0.08, 0.06
    assert (row["n"], row["seeds"], row["threshold"]) == (3, 3, 0.05)
    assert row["verdict"] == "holds"
    assert measured_text(row) == "+8.0 ± 2.0 points (n = 3), ε = 0.75"


@given(st.permutations(range(8)))
def test_the_order_of_runs_does_not_matter(order):
    runs = frame(*pairs([0.1, 0.7, 0.3001, 1e-9], [0.2, 0.9, 0.01, 0.79]))
    claims = parse(GAIN)
    assert judge(claims, runs.iloc[order]).to_csv() == judge(claims, runs).to_csv()


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.08, 0.10, 0.12], "holds"),  # 0.10 ± 0.02 against 0.05
        ([0.04, 0.06, 0.08], "holds within one std"),  # 0.06 ± 0.02
        ([0.02, 0.04, 0.06], "does not hold, within one std"),  # 0.04 ± 0.02
        ([0.00, 0.02, 0.04], "does not hold"),  # 0.02 ± 0.02
        ([0.05], "holds"),
        ([0.04], "does not hold"),
    ],
)
def test_verdicts_by_hand(gains, verdict):
    rows = pairs([0.5 + gain for gain in gains], [0.5] * len(gains))
    assert only(GAIN, *rows)["verdict"] == verdict
    mirrored = without(GAIN, "at_least") | {"at_most": -0.05}
    rows = pairs([0.5 - gain for gain in gains], [0.5] * len(gains))
    assert only(mirrored, *rows)["verdict"] == verdict


def test_a_gain_of_exactly_the_threshold_holds_though_floats_fall_short():
    assert 0.85 - 0.80 < 0.05
    assert only(GAIN, *pairs([0.85], [0.80]))["verdict"] == "holds"
    # Equal differences whose rounding errors differ have no spread.
    assert only(GAIN, *pairs([0.85, 0.55], [0.80, 0.50]))["verdict"] == "holds"


def test_one_seed_has_no_spread_and_says_so():
    row = only(GAIN, *pairs([0.8], [0.7]))
    assert math.isnan(row["std"])
    assert measured_text(row) == "+10.0 points (n = 1), ε = 0.75"


def test_reductions_by_hand():
    row = only(SAVING, *pairs([60.0, 80.0], [100.0, 160.0], "energy_to_target"))
    assert row["mean"] == pytest.approx(0.45)  # of 0.4 and 0.5
    assert row["std"] == pytest.approx(0.05 * 2**0.5)
    assert row["verdict"] == "holds"
    assert measured_text(row) == "+45.0 ± 7.1 % (n = 2), ε = 0.75"


def test_a_reduction_of_nothing_is_not_counted():
    row = only(SAVING, *pairs([60.0, 0.0, 5.0], [100.0, 0.0, 0.0], "energy_to_target"))
    assert (row["n"], row["mean"]) == (1, pytest.approx(0.4))


@pytest.mark.parametrize(
    ("measure", "value", "text"),
    [
        ("accuracy", 0.8126, "0.813 (n = 1), ε = 0.75"),
        ("volatility", 0.01234, "0.0123 (n = 1), ε = 0.75"),
        ("energy_to_target", 12345.6, "12,346 J (n = 1), ε = 0.75"),
        ("delay_to_target", 9.876, "9.88 s (n = 1), ε = 0.75"),
        ("rounds_to_target", 40.0, "40.0 rounds (n = 1), ε = 0.75"),
        ("s_trusted", 3.25, "3.2 devices (n = 1), ε = 0.75"),
    ],
)
def test_a_measure_by_itself_has_its_unit(measure, value, text):
    claim = without(GAIN, "over", "as") | {"measure": measure}
    assert measured_text(only(claim, run(**{measure: value}))) == text


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
    with pytest.raises(InputError, match="devices"):
        check_claims(parse(claim), ("arm", "control.alpha_1"))


@pytest.mark.parametrize(
    ("measure", "ours", "theirs", "text"),
    [
        ("accuracy", 0.7, 0.73, "-3.0 points (n = 1), ε = 0.75"),
        ("volatility", 0.0125, 0.0100, "+0.25 points (n = 1), ε = 0.75"),
        ("delay_to_target", 90.0, 100.0, "-10 s (n = 1), ε = 0.75"),
        ("local_steps", 5.5, 5.0, "+0.5 steps (n = 1), ε = 0.75"),
    ],
)
def test_differences_have_a_sign_and_those_of_shares_are_points(measure, ours, theirs, text):
    row = only(GAIN | {"measure": measure}, *pairs([ours], [theirs], measure))
    assert measured_text(row) == text


# --- runs that lack something ---


def test_only_seeds_where_both_reached_the_target_are_compared():
    rows = pairs([50.0, 60.0, None, 70.0], [100.0, None, 100.0, 100.0], "energy_to_target")
    row = only(SAVING, *rows)
    assert (row["n"], row["seeds"], row["reached_of"], row["reached_over"]) == (2, 4, 3, 3)
    assert row["mean"] == pytest.approx(0.4)
    assert measured_text(row) == (
        "+40.0 ± 14.1 % (n = 2), reached in 2 of 4 seeds (each side: 3, 3), ε = 0.75"
    )


def test_a_target_that_nobody_reaches():
    row = only(SAVING, *pairs([50.0, 60.0], [None, None], "energy_to_target"))
    assert (row["verdict"], row["n"]) == ("not reached", 0)
    assert math.isnan(row["mean"])
    assert measured_text(row) == "reached in 0 of 2 seeds (each side: 2, 0), ε = 0.75"
    by_itself = without(SAVING, "over", "as")
    rows = [run(seed=seed, energy_to_target=value) for seed, value in ((0, None), (1, 9.0))]
    assert "reached in 1 of 2 seeds, ε" in measured_text(only(by_itself, *rows))


def test_what_has_no_target_is_not_measured_rather_than_not_reached():
    claim = without(GAIN, "over", "as") | {"measure": "local_steps"}
    row = only(claim, run(local_steps=None))
    assert row["verdict"] == "not measured"
    assert measured_text(row) == "measured in 0 of 1 seeds, ε = 0.75"


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([run("p1_0.5", 0)], "no finished runs"),
        ([run("hfl_dp", 0)], "no finished runs"),
        ([run("other", 0)], "no finished runs"),
        ([run("p1_0.5", 0), run("hfl_dp", 1)], "no shared seeds"),
    ],
)
def test_unfinished_studies(rows, verdict):
    row = only(GAIN | {"reason": "it differs"}, *rows)
    assert (row["verdict"], row["seeds"], measured_text(row)) == (verdict, 0, "")
    (overall,) = verdicts(pd.DataFrame([row])).to_dict("records")
    assert (overall["verdict"], overall["reason"]) == (verdict, "")


def test_seeds_that_one_side_lacks_are_left_out():
    rows = [*pairs([0.8, 0.8], [0.7, 0.7]), run("p1_0.5", 2, accuracy=0.1, verified=9.0)]
    row = only(GAIN, *rows)
    assert (row["n"], row["mean"]) == (2, pytest.approx(0.1))
    assert row["epsilon_verified"] == 0.75


# --- selection ---


@pytest.mark.parametrize(
    ("column", "in_yaml", "in_runs", "other"),
    [
        ("privacy.epsilon", 1.0, 1, 2),
        ("privacy.epsilon", 1, 1.0, 2.0),
        ("topology.trust.ratios", [0.5], "[0.5]", "[1.0]"),
        ("topology.trust.ratios", [1], "[1.0]", "[0.5]"),
        ("topology.trust.ratios", [0.5, None], "[0.5, None]", "[0.5]"),
        ("training.batch_size", None, math.nan, 32.0),
        ("control.enabled", True, "True", "False"),
        ("model.name", "svm", "svm", "softmax"),
        ("algorithm", "hfl", "hfl", "m2fdp"),
    ],
)
def test_values_match_however_they_are_written(column, in_yaml, in_runs, other):
    claim = without(GAIN, "over", "as") | {"of": {column: in_yaml}, "at_least": 0.9}
    rows = [run(accuracy=0.95) | {column: in_runs}, run(accuracy=0.1) | {column: other}]
    row = only(claim, *rows)
    assert (row["mean"], row["n"]) == (0.95, 1)


def test_true_is_not_one():
    claim = without(GAIN, "over", "as") | {"of": {"control.enabled": True}}
    assert only(claim, run(**{"control.enabled": 1.0}))["verdict"] == "no finished runs"


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


def test_a_run_that_lacks_a_parameter_differs_in_it():
    rows = [run() | {"control.tau": tau} for tau in (None, 400.0)]
    with pytest.raises(InputError, match="select by control.tau too"):
        only(without(GAIN, "over", "as"), *rows)


def test_two_equal_runs_of_one_seed_are_refused():
    with pytest.raises(InputError, match="over = .* selects 2 runs of seed 0; keep one of them"):
        only(GAIN, run("p1_0.5"), run("hfl_dp"), run("hfl_dp", accuracy=0.7))
    with pytest.raises(InputError, match="of = .* selects 2 runs of seed 0; select by algorithm"):
        only(
            TREND,
            *course((1.0, 0.0), (2.0, 0.0)),
            *course((1.0, 0.0), algorithm="hfl_dp"),
        )


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            GAIN | {"measure": "speed"},
            "measure = 'speed': is none of accuracy, volatility, rounds_to_target, ",
        ),
        (GAIN | {"of": {"epsilon": 1.0}}, "of = 'epsilon': is none of algorithm, arm, seed_count"),
        (GAIN | {"over": {"version": "paper"}}, "over = 'version': is none of algorithm, arm"),
        (GAIN | {"over": {"arm": "hfl"}}, "over.arm = 'hfl': is none of D5, p1_0.5, hfl_dp"),
        (GAIN | {"versions": ["ours"]}, "versions = 'ours': is none of paper, verified"),
        (TREND | {"of": {}, "trend": "arm"}, "trend = 'arm': is none of seed_count"),
        (TREND, "trend = 'control.alpha_1': is none of seed_count"),
    ],
)
def test_unknown_names_are_refused_before_any_run(claim, message):
    columns = ("arm", "version", "seed", "seed_count")
    with pytest.raises(InputError) as refused:
        check_claims(
            parse(claim),
            columns,
            versions=("paper", "verified"),
            values={"arm": ("D5", "p1_0.5", "hfl_dp")},
        )
    assert message in str(refused.value)
    assert f"claim {claim['claim']!r}" in str(refused.value)


def test_good_claims_pass():
    claims = parse(GAIN | {"versions": ["verified"]}, TREND)
    check_claims(claims, ("arm", "control.alpha_1"), versions=("verified",))


def test_measures_that_a_study_lacks_are_refused():
    with pytest.raises(InputError, match="energy_to_target.*none of accuracy$"):
        check_claims(parse(SAVING), ("arm",), measures=("accuracy",))
    with pytest.raises(InputError, match="energy_to_target.*none of accuracy$"):
        judge(parse(SAVING), frame(*pairs([0.8], [0.7])))


def test_versions_of_a_study_without_any_are_refused():
    with pytest.raises(InputError, match="versions = 'paper': is none of .none in this study"):
        judge(parse(GAIN | {"versions": ["paper"]}), frame(*pairs([0.8], [0.7])))


def test_claims_in_the_same_words_are_refused():
    with pytest.raises(InputError, match="is there 2 times"):
        check_claims(parse(GAIN, GAIN), ("arm",))


# --- trends ---


@pytest.mark.parametrize(
    ("points", "holds"),
    [
        ([(1.0, 0.1), (2.3, 0.1), (5.1, 0.1)], True),
        ([(1.0, 0.1), (3.0, 0.1), (2.95, 0.02)], True),  # a step back within 0.1
        ([(1.0, 0.1), (3.0, 0.1), (2.8, 0.02)], False),  # a step back beyond it
        ([(1.0, 0.1), (2.0, 0.1), (1.9, 2.0)], False),  # arrives within the last one's 2.0
        ([(1.0, 2.0), (1.5, 0.1), (2.0, 0.1)], False),  # or the first one's
        ([(1.0, 0.0), (2.0, 0.0)], True),
        ([(2.0, 0.0), (1.0, 0.0)], False),
        ([(2.0, 0.0), (2.0, 0.0), (2.0, 0.0)], False),
    ],
)
def test_trends_by_hand(points, holds):
    verdict = "holds" if holds else "does not hold"
    assert only(TREND, *course(*points))["verdict"] == verdict
    mirrored = [(10.0 - mean, std) for mean, std in points]
    assert only(TREND | {"direction": "falls"}, *course(*mirrored))["verdict"] == verdict


def test_a_trend_is_told_with_its_values_in_the_order_of_numbers():
    rows = course((1.0, 0.1), (2.3, 0.1), (5.1, 0.2))
    row = only(TREND, *rows[::-1])
    assert row["values"] == (1.0, 10.0, 100.0)
    assert row["means"] == pytest.approx((1.0, 2.3, 5.1))
    assert (row["mean"], row["std"]) == (pytest.approx(4.1), pytest.approx(0.2))
    assert measured_text(row) == (
        "1.0 → 2.3 → 5.1 steps at control.alpha_1 = 1, 10, 100 (n = 2), ε = 0.75"
    )


def test_a_constant_is_told():
    row = only(TREND, *course((7.0, 0.0), (7.0, 0.0)))
    assert measured_text(row).startswith("7.0 → 7.0 steps (constant) at control.alpha_1 = 1, 10")


def test_lists_of_numbers_have_an_order():
    rows = [
        run("D5", accuracy=accuracy, **{"topology.fanouts": fanouts})
        for fanouts, accuracy in (("[10, 5]", 0.8), ("[2, 25]", 0.7), ("[2, 5]", 0.6))
    ]
    claim = TREND | {"measure": "accuracy", "trend": "topology.fanouts"}
    row = only(claim, *rows)
    assert row["verdict"] == "holds"
    assert measured_text(row) == (
        "0.600 → 0.700 → 0.800 at topology.fanouts = [2, 5], [2, 25], [10, 5] (n = 1), ε = 0.75"
    )
    one = [run("D5", local_steps=k) | {"p": p} for k, p in ((2, "[1.0]"), (1, "[0.5]"))]
    assert only(TREND | {"trend": "p"}, *one)["values"] == (0.5, 1.0)


@pytest.mark.parametrize("value", ["svm", math.nan, "[]", "['svm']"])
def test_a_trend_over_what_has_no_order_is_refused(value):
    rows = [run("D5", local_steps=1.0) | {"x": value}, run("D5", 1, local_steps=2.0) | {"x": value}]
    with pytest.raises(InputError, match="trend = 'x'.*not a number"):
        only(TREND | {"trend": "x"}, *rows)


def test_a_trend_that_lacks_values_is_not_judged():
    assert only(TREND, *course((1.0, 0.0)))["verdict"] == "one value only"
    row = only(TREND, *course((1.0, 0.0), arm="D6"))
    assert (row["verdict"], row["n"], measured_text(row)) == ("no finished runs", 0, "")
    rows = course((1.0, 0.0), (2.0, 0.0))
    for unmeasured in rows[2:]:
        unmeasured["local_steps"] = None
    row = only(TREND, *rows)
    assert row["verdict"] == "not measured"
    assert measured_text(row) == (
        "1.0 → – steps at control.alpha_1 = 1, 10 (n = 0), measured in 0 of 2 seeds, ε = 0.75"
    )


def test_a_trend_tells_of_the_value_that_is_reached_least():
    rows = course((10.0, 0.0), (20.0, 0.0))
    for row in rows:
        row["energy_to_target"] = row["local_steps"]
    rows[3]["energy_to_target"] = None
    row = only(TREND | {"measure": "energy_to_target"}, *rows)
    assert (row["n"], row["seeds"], row["verdict"]) == (1, 2, "holds")
    assert measured_text(row) == (
        "10 → 20 J at control.alpha_1 = 1, 10 (n = 1), reached in 1 of 2 seeds, ε = 0.75"
    )


def test_runs_that_a_trend_does_not_tell_apart_are_refused():
    rows = [run("D5", local_steps=k) | {"control.alpha_1": None} for k in (1.0, 2.0)]
    with pytest.raises(InputError, match="selects 2 runs of seed 0; keep one of them"):
        only(TREND, *rows)


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
    assert math.isinf(row["epsilon_verified"])
    assert not row["within_nominal"]
    assert measured_text(row).endswith("ε = ∞")


def test_runs_without_privacy_have_no_epsilon_to_keep():
    rows = pairs([0.8], [0.7], privacy="none")
    row = only(GAIN, *rows)
    assert math.isnan(row["epsilon_verified"]) and math.isnan(row["epsilon_nominal"])
    assert measured_text(row) == "+10.0 points (n = 1), no DP"
    assert verdicts(judge(parse(GAIN), frame(*rows)))["verdict"].item() == "holds"


def in_version(version: str, gain: float, verified: float | None, privacy="verified") -> list[dict]:
    return pairs([0.5 + gain], [0.5], version=version, verified=verified, privacy=privacy)


@pytest.mark.parametrize(
    ("versions", "verdict"),
    [
        ([("paper", 0.1, 24.121), ("verified", 0.1, 1.0)], "holds"),
        ([("paper", 0.0, 24.121), ("verified", 0.1, 1.0 + 1e-10)], "holds"),
        (
            [("paper", 0.1, 24.121), ("verified", 0.0, 1.0)],
            "holds only at verified ε = 24.2 (nominal 1)",
        ),
        (
            [("paper", 0.1, 24.121), ("verified", 0.1, 1.001)],
            "holds only at verified ε = 1.01 (nominal 1)",
        ),
        ([("paper", 0.1, None)], "holds only at verified ε = ∞ (nominal 1)"),
        ([("paper", 0.0, 24.0), ("verified", 0.0, 1.0)], "does not hold"),
        ([("a", 0.1, 0.9, "conditional"), ("b", 0.0, 0.9)], "holds (conditional)"),
        ([("a", 0.1, 0.9, "conditional"), ("b", 0.1, 0.95)], "holds"),
        (
            [("a", 0.1, 2.0, "conditional"), ("b", 0.1, 3.0)],
            "holds only at verified ε = 2 (nominal 1) (conditional)",
        ),
        (
            [("a", 0.1, 2.0, "conditional"), ("b", 0.1, 2.0)],
            "holds only at verified ε = 2 (nominal 1)",
        ),
    ],
)
def test_verdicts_over_versions(versions, verdict):
    rows = [row for version in versions for row in in_version(*version)]
    reason = "because"
    (overall,) = verdicts(judge(parse(GAIN | {"reason": reason}), frame(*rows))).to_dict("records")
    assert tuple(overall) == VERDICT_COLUMNS
    assert overall["verdict"] == verdict
    assert overall["reason"] == ("" if verdict in ("holds", "holds (conditional)") else reason)


def test_a_mean_over_seeds_that_holds_narrowly_holds():
    rows = pairs([0.54, 0.56, 0.58], [0.5] * 3)
    judged = judge(parse(GAIN), frame(*rows))
    assert judged["verdict"].item() == "holds within one std"
    assert verdicts(judged)["verdict"].item() == "holds"


def test_every_run_keeps_to_its_own_nominal_epsilon():
    """Else a claim over several budgets would hide what the smallest one loses."""
    rows = [
        run("D5", accuracy=accuracy, verified=7.75, epsilon_nominal=nominal)
        | {"privacy.epsilon": nominal}
        for nominal, accuracy in ((1.0, 0.6), (8.0, 0.7))
    ]
    claim = TREND | {"measure": "accuracy", "trend": "privacy.epsilon"}
    judged = judge(parse(claim), frame(*rows))
    assert judged["verdict"].item() == "holds"
    assert verdicts(judged)["verdict"].item() == (
        "holds only at verified ε = 7.75 (nominal 8; some runs pass theirs)"
    )


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
    assert judge(claims, frame(*rows))["version"].tolist() == ["paper", "verified", "verified"]


def test_numbers_stay_numbers():
    judged = judge(parse(GAIN), frame(*pairs([0.8], [0.7])))
    for name in ("mean", "std", "threshold", "epsilon_nominal", "epsilon_verified"):
        assert judged[name].dtype == float
    for name in ("n", "seeds", "reached_of", "reached_over"):
        assert judged[name].dtype == int
    for name in ("within_nominal", "conditional"):
        assert judged[name].dtype == bool


# --- what people read ---


def two_versions(reason: str) -> pd.DataFrame:
    rows = [
        *pairs([0.80, 0.82], [0.70, 0.72], version="paper", verified=24.121),
        *pairs([0.74, 0.76], [0.72, 0.74], version="verified"),
        *course((1.0, 0.0), (2.0, 0.0), version="verified"),
    ]
    claims = parse(GAIN | {"reason": reason}, TREND | {"versions": ["verified"]})
    return judge(claims, pd.DataFrame(rows, columns=dict.fromkeys(k for r in rows for k in r)))


def test_markdown():
    assert to_markdown(two_versions("sound noise|is larger")) == (
        "| claim | source | paper says | measured (paper) | measured (verified) | verdict "
        "| reason if it does not hold |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| trust gains 5 points | J Sec. VI-B.1 | + 5 points "
        "| +10.0 ± 0.0 points (n = 2), ε = 24.2: holds "
        "| +2.0 ± 0.0 points (n = 2), ε = 0.75: does not hold "
        "| holds only at verified ε = 24.2 (nominal 1) | sound noise\\|is larger |\n"
        "| K rises with alpha_1 | J Sec. VI-D.3 | K rises | – "
        "| 1.0 → 2.0 steps at control.alpha_1 = 1, 10 (n = 2), ε = 0.75: holds | holds |  |\n"
    )


def test_markdown_without_versions_and_of_conditional_and_unfinished_runs():
    judged = judge(parse(GAIN), frame(*pairs([0.8], [0.7], privacy="conditional")))
    assert "| measured |" in to_markdown(judged)
    assert "| +10.0 points (n = 1), ε = 0.75 cond.: holds | holds (conditional) |" in to_markdown(
        judged
    )
    unfinished = judge(parse(GAIN), frame(run()))
    assert "| + 5 points | no finished runs | no finished runs |" in to_markdown(unfinished)


def test_no_claims():
    judged = judge([], frame(run()))
    assert list(judged.columns) == list(JUDGED_COLUMNS) and judged.empty
    assert verdicts(judged).empty
    assert to_markdown(judged).count("\n") == 2


def test_a_hundred_columns_hold_every_word():
    console = Console(file=io.StringIO(), width=100)
    print_claims(two_versions("sound noise is larger"), console, "Claims of [red]J")
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].strip() == "Claims of [red]J"
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]
    columns = [" ".join(filter(None, column)) for column in zip(*cells, strict=True)]
    for text in (
        "trust gains 5 points",
        "J Sec. VI-B.1: + 5 points",
        "measured (paper)",
        "+10.0 ± 0.0 points (n = 2), ε = 24.2",
        "holds only at verified ε = 24.2 (nominal 1)",
        "sound noise is larger",
        "1.0 → 2.0 steps at control.alpha_1 = 1, 10 (n = 2), ε = 0.75",
    ):
        assert any(text in column for column in columns)
