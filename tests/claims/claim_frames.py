"""Claims, and frames of runs that they are judged by."""

from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from m2fdp.claims.declared import Claim, ThresholdClaim, TrendClaim
from m2fdp.claims.judging import judge

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


def trend_runs(*means: tuple[float, float], arm="D5", **other) -> list[dict]:
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


def in_version(version: str, gain: float, verified: float | None, privacy="verified") -> list[dict]:
    """Two seeds of the same gain."""
    return pairs([0.5 + gain] * 2, [0.5] * 2, version=version, verified=verified, privacy=privacy)
