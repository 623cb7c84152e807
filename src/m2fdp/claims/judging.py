"""A paper's claims judged against the runs of a study: numbers, and a verdict on each."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.claims.declared import ThresholdClaim, TrendClaim, check_claims, selections
from m2fdp.claims.frames import VERSION, comparable, swept_columns
from m2fdp.claims.intervals import FAILS, HOLDS, IN_PART, OPEN, against_bounds, rising, summarise
from m2fdp.claims.measures import MEASURES
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import nominal, upper_bound

# Verdicts where there is nothing to judge by.
NOT_REACHED, NOT_MEASURED = "not reached", "not measured"
UNFINISHED, UNPAIRED, ONE_VALUE = "no finished runs", "no shared seeds", "one value only"
_AWAITED = (UNFINISHED, UNPAIRED, ONE_VALUE)

_CONDITIONAL = " (conditional)"

# Verified epsilons are computed by bisection and meet the nominal one up to this.
_EPSILON_SLACK = 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A claim in one version of a study."""

    claim: str
    source: str
    paper: str
    reason: str  # "" = none is given
    version: str  # "" in a study without versions
    measure: str
    comparison: str  # value, difference, reduction or trend
    # Over seeds: mean and sample standard deviation (NaN for fewer than two), in units of the
    # measure or, of a reduction, as a share. Of a trend: of the last value's measure less the
    # first's.
    mean: float
    std: float
    # Seeds with a finished run on each side; how many have the measure `of` and `over`; and on both
    # sides, which the numbers are made from. Of a trend: with a run, or the measure, everywhere.
    seeds: int
    reached_of: int
    reached_over: int
    n: int
    at_least: float = math.nan  # NaN = no such bound
    at_most: float = math.nan
    trend: str = ""  # the column; "" of a threshold
    values: tuple[float | tuple[float, ...], ...] = ()  # of that column, in order
    means: tuple[float, ...] = ()  # at these values, of the n seeds
    # The largest of the private runs, reached or not; NaN = no private run.
    epsilon_nominal: float
    epsilon_verified: float
    within_nominal: bool  # no private run's verified epsilon passes its own nominal one
    conditional: bool  # a private run's guarantee is conditional
    verdict: str


JUDGED_COLUMNS = tuple(field.name for field in fields(Judgement))
VERDICT_COLUMNS = ("claim", "source", "paper", "verdict", "reason")


def judge(
    claims: Sequence[ThresholdClaim | TrendClaim],
    measured: pd.DataFrame,
    versions: Sequence[str] = (),
) -> pd.DataFrame:
    """Compare what a paper claims with what the runs measure.

    A threshold is judged by `against_bounds`, on the values or on their differences seed by seed, a
    trend by `rising`. One seed, and a tie, are open.

    Args:
        measured: one row a finished run: `m2fdp.claims.frames.RUN_COLUMNS`, measures (NaN where
            a run has none), the study's arms and swept parameters, and `version` where it has them.
        versions: the study's versions, in its order, those without a finished run, too.

    Returns:
        `JUDGED_COLUMNS`, a row a claim and version, in the order of both. `version` is an ordered
        categorical of all versions, so that their order is known where a claim names but some.

    Raises:
        InputError: as `check_claims`, several runs of one seed where a claim asks for one, or a
            trend over what are not numbers.
    """
    measures = [name for name in MEASURES if name in measured.columns]
    check_claims(claims, swept_columns(measured.columns), versions, measures)
    versions = versions or ("",)
    rows = []
    for claim in claims:
        for version in versions:
            if version and claim.versions is not None and version not in claim.versions:
                continue
            runs = measured[measured[VERSION] == version] if version else measured
            if isinstance(claim, TrendClaim):
                rows.append(asdict(_judge_trend(claim, version, runs)))
            else:
                rows.append(asdict(_judge_threshold(claim, version, runs)))
    judged = pd.DataFrame(rows, columns=list(JUDGED_COLUMNS))
    return judged.astype({VERSION: pd.CategoricalDtype(list(versions), ordered=True)})


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """One verdict a claim, over the versions of the study.

    A claim holds if it does in a version whose runs keep to their nominal epsilon and fails in no
    version; it holds in part if it fails in one. Holding in other versions alone, it holds only at
    the smallest verified epsilon of those, and is open where it is in a version whose runs keep to
    theirs. It fails if it holds nowhere and nothing is open.

    Returns:
        `VERDICT_COLUMNS`, texts, a row a claim; the reason is empty where the claim simply holds
        or is not judged yet.
    """
    rows = []
    for _, versions in judged.groupby("claim", sort=False):
        first = versions.iloc[0]
        verdict = _over_versions(versions)
        plain = verdict in (HOLDS, HOLDS + _CONDITIONAL, *_AWAITED)
        rows.append(
            {name: first[name] for name in ("claim", "source", "paper")}
            | {"verdict": verdict, "reason": "" if plain else first["reason"]}
        )
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS))


def _select(
    claim: ThresholdClaim | TrendClaim, side: str, runs: pd.DataFrame, column: str | None = None
) -> pd.DataFrame:
    """The runs that one side of a claim is about, in the order of their seeds."""
    selection = selections(claim)[side]
    chosen = np.ones(len(runs), dtype=bool)
    for name, value in selection.items():
        chosen &= np.array([comparable(cell) == comparable(value) for cell in runs[name]], bool)
    runs = runs[chosen].sort_values("seed")
    keys = ["seed"] if column is None else ["seed", column]
    twice = runs[runs.duplicated(keys, keep=False)]
    if len(twice):
        _, first = next(iter(twice.groupby(keys, sort=False, dropna=False)))
        columns = ["algorithm", *swept_columns(runs.columns)]
        varied = [key for key in columns if first[key].map(comparable).nunique(dropna=False) > 1]
        remedy = f"select by {' or '.join(varied)} too" if varied else "keep one of them"
        problem = f"selects {len(first)} runs of seed {first['seed'].iloc[0]}; {remedy}"
        raise InputError(f"claim {claim.claim!r}, {side}", selection, problem)
    return runs


def _about(claim: ThresholdClaim | TrendClaim, version: str, runs: pd.DataFrame) -> dict[str, Any]:
    """Of a `Judgement`: the claim's words, and what the private ones among the runs promise."""
    words = {name: getattr(claim, name) for name in ("claim", "source", "paper", "measure")}
    private = runs[runs["privacy"] != "none"]
    bound = private["epsilon_verified"].astype(float).fillna(math.inf)
    target = private["epsilon_nominal"].astype(float).fillna(math.inf)
    keeping = np.isfinite(bound) & (bound <= target * _EPSILON_SLACK)
    return words | {
        "reason": claim.reason or "",
        "version": version,
        "epsilon_nominal": float(target.max()),
        "epsilon_verified": float(bound.max()),
        "within_nominal": bool(keeping.all()),
        "conditional": bool((private["privacy"] == "conditional").any()),
    }


def _judge_threshold(claim: ThresholdClaim, version: str, runs: pd.DataFrame) -> Judgement:
    sides = {side: _select(claim, side, runs).set_index("seed") for side in selections(claim)}
    subject, reference = sides["of"], sides.get("over", sides["of"])
    seeds = subject.index.intersection(reference.index)
    subject, reference = subject.loc[seeds], reference.loc[seeds]
    ours, theirs = subject[claim.measure].astype(float), reference[claim.measure].astype(float)
    if claim.comparison is None:
        values = ours
    elif claim.comparison == "difference":
        values = ours - theirs
    else:
        # A reduction of nothing is not defined.
        values = (theirs - ours) / theirs.where(theirs != 0)
    summary = summarise(values.dropna().to_numpy())
    at_least = math.nan if claim.at_least is None else claim.at_least
    at_most = math.nan if claim.at_most is None else claim.at_most
    if summary.n:
        verdict = against_bounds(summary.interval(), at_least, at_most)
    elif len(seeds):
        verdict = _missing(claim.measure)
    else:
        verdict = UNPAIRED if all(map(len, sides.values())) else UNFINISHED
    return Judgement(
        **_about(claim, version, pd.concat([subject, reference])) | asdict(summary),
        comparison=claim.comparison or "value",
        seeds=len(seeds),
        reached_of=int(ours.notna().sum()),
        reached_over=int(theirs.notna().sum()),
        at_least=at_least,
        at_most=at_most,
        verdict=verdict,
    )


def _judge_trend(claim: TrendClaim, version: str, runs: pd.DataFrame) -> Judgement:
    runs = _select(claim, "of", runs, claim.trend)
    of_runs = [_place(claim, value) for value in runs[claim.trend]]
    places = sorted(set(of_runs))
    points = [
        runs[[other == place for other in of_runs]].set_index("seed")[claim.measure]
        for place in places
    ]
    # A row a seed that has a run at every value.
    seeds = pd.concat(points, axis="columns", join="inner") if points else pd.DataFrame()
    paired = seeds.astype(float).dropna().to_numpy()
    n = len(paired)
    if len(places) < 2:
        verdict = ONE_VALUE if places else UNFINISHED
    elif not len(seeds):
        verdict = UNPAIRED
    elif not n:
        verdict = _missing(claim.measure)
    else:
        verdict = rising(paired if claim.direction == "rises" else -paired, claim.tie)
    gain = summarise(paired[:, -1] - paired[:, 0] if n else np.array([]))
    # Without a seed that all values have: of what each has.
    means = paired.mean(axis=0) if n else [point.astype(float).mean() for point in points]
    return Judgement(
        **_about(claim, version, runs) | asdict(gain),
        comparison="trend",
        seeds=len(seeds),
        reached_of=n,
        reached_over=n,
        trend=claim.trend,
        values=tuple(place[0] if len(place) == 1 else place for place in places),
        means=tuple(map(float, means)),
        verdict=verdict,
    )


def _place(claim: TrendClaim, value: object) -> tuple[float, ...]:
    """Where a value of the trend's column stands in the order: numbers, or lists of numbers."""
    normal = comparable(value)
    numbers = normal if isinstance(normal, tuple) else (normal,)
    if not numbers or not all(isinstance(number, float) for number in numbers):
        problem = f"a run that is selected has {value!r}, which is not a number; select fewer"
        raise InputError(f"claim {claim.claim!r}, trend", claim.trend, problem)
    return numbers


def _missing(measure: str) -> str:
    return NOT_REACHED if measure.endswith("_to_target") else NOT_MEASURED


def _over_versions(rows: pd.DataFrame) -> str:
    """The verdict of one claim over its versions, all of which are `rows`."""
    holding = rows[rows["verdict"] == HOLDS]
    if holding.empty:
        in_order = (OPEN, FAILS, NOT_REACHED, NOT_MEASURED, *_AWAITED)
        return next(verdict for verdict in in_order if (rows["verdict"] == verdict).any())
    keeping = holding[holding["within_nominal"]]
    if len(keeping):
        word = IN_PART if (rows["verdict"] == FAILS).any() else HOLDS
        return word + (_CONDITIONAL if keeping["conditional"].all() else "")
    best = holding.sort_values(["epsilon_verified", "conditional"], kind="stable").iloc[0]
    condition = _CONDITIONAL if best["conditional"] else ""
    # Where runs differ in their nominal epsilon, the largest ones do not tell which pass theirs.
    hidden = best["epsilon_verified"] <= best["epsilon_nominal"] * _EPSILON_SLACK
    undecided = (rows["within_nominal"] & (rows["verdict"] == OPEN)).any()
    words = "open; holds at" if undecided else "holds only at"
    return (
        f"{words} verified ε = {upper_bound(best['epsilon_verified'])} "
        f"(nominal {nominal(best['epsilon_nominal'])}"
        f"{'; some runs pass theirs' if hidden else ''}){condition}"
    )
