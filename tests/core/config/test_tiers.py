"""The blocks of D's tiers and clock: what is refused, and how profiles are written."""

from __future__ import annotations

import pytest

from m2fdp import load_config
from m2fdp.core.errors import InputError
from m2fdp.given.loading import parse_config


@pytest.mark.parametrize(
    ("block", "keys", "says"),
    [
        ("clock", {"model": "resnet57"}, "clock.model = 'resnet57': valid: resnet56"),
        ("clock", {"model": "resnet2"}, "any resnetN of N = 18 b + 2"),
        ("clock", {"model": "vgg"}, "valid: resnet56, resnet110"),
        ("clock", {"rate_unit": "Mbps"}, "'mebibyte' or 'megabit'"),
        ("clock", {"profiles": "4"}, "clock.profiles.0 = '4': valid: CPUs and a link rate"),
        ("clock", {"profiles": "4/fast"}, "clock.profiles.0.1 = 'fast'"),
        ("clock", {"profiles": []}, "at least 1 item"),
        ("clock", {"noise": -0.1}, "greater than or equal to 0"),
        ("tiering", {"tiers": 8}, "less than or equal to 7"),
        ("tiering", {"static_tier": 2}, "schedule: static and static_tier need each other"),
        ("tiering", {"schedule": "static"}, "need each other"),
        ("tiering", {"schedule": "static", "static_tier": 8}, "static_tier = 8 must be one of 1"),
        ("tiering", {"profile": "paper", "tiers": 5}, "knows tiers: 6 and 7 only"),
        ("tiering", {"profile": "paper", "whole_model": True}, "no whole_model"),
    ],
)
def test_what_is_refused_is_one_line(block, keys, says):
    with pytest.raises(InputError) as refusal:
        parse_config({block: keys})
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_profiles_are_written_as_in_print():
    clock = load_config({"clock.profiles": "4/100|0.2/30"}).clock
    assert clock.profiles == [[4.0, 100.0], [0.2, 30.0]]


def test_the_whole_models_tier_counts():
    tiering = parse_config(
        {"tiering": {"whole_model": True, "schedule": "static", "static_tier": 8}}
    ).tiering
    assert tiering.static_tier == 8
