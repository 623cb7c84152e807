"""Claims of a paper: what they may say, and refusals before any run."""

import math

import pytest
from pydantic import ValidationError
from tests.claims.claim_frames import GAIN, TREND, parse, without

from m2fdp.claims.declared import check_claims
from m2fdp.core.errors import InputError


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (GAIN | {"at_most": -0.1}, "nothing lies between"),
        (without(GAIN, "at_least"), "at_least, at_most or both"),
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


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            GAIN | {"measure": "speed"},
            "measure = 'speed': is none of accuracy, loss, volatility, rounds_to_target, ",
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
    columns, arms = ("arm", "version", "seed", "seed_count"), {"arm": ("D5", "p1_0.5", "hfl_dp")}
    with pytest.raises(InputError) as refused:
        check_claims(parse(claim), columns, versions=("paper", "verified"), values=arms)
    assert message in str(refused.value)
    assert f"claim {claim['claim']!r}" in str(refused.value)


@pytest.mark.parametrize("size", ["devices", "zones"])
def test_a_trend_over_the_size_of_the_network_needs_fanouts_that_vary(size):
    claims = parse(TREND | {"measure": "accuracy", "trend": size})
    check_claims(claims, ("arm", "topology.fanouts"))
    with pytest.raises(InputError, match=size):
        check_claims(claims, ("arm", "control.alpha_1"))


def test_claims_in_the_same_words_are_refused():
    with pytest.raises(InputError, match="is there 2 times"):
        check_claims(parse(GAIN, GAIN), ("arm",))
