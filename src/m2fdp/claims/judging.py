"""A paper's claims judged against the runs of a study: numbers, and a verdict on each."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.claims import intervals
from m2fdp.claims.declared import ThresholdClaim, TrendClaim, check_claims, selections
from m2fdp.claims.frames import ARM, VERSION, comparable, swept_columns
from m2fdp.claims.intervals import FAILS, HOLDS, IN_DIRECTION, OPEN, SLACK, summarise
from m2fdp.claims.measures import MEASURES
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import nominal, upper_bound

# Verdicts where there is nothing to judge by.
NOT_REACHED = "not reached"  # or measured, by any run
UNFINISHED = "no finished runs"  # that could be compared
TUNED_LESS = f"{OPEN} (the rival was tuned less)"
# The lowest first; what is awaited tells nothing.
_ORDER = (FAILS, NOT_REACHED, OPEN, TUNED_LESS, IN_DIRECTION, HOLDS, UNFINISHED)
_RANKS = {verdict: rank for rank, verdict in enumerate(_ORDER)}

_Look = Callable[[float], str]

# Verified epsilons are computed by bisection and meet the nominal one up to this.
_EPSILON_SLACK = 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A claim in one version of a study."""

    claim: str
    source: str
    paper: str
    version: str  # "" in a study without versions
    measure: str
    comparison: str  # value, difference, reduction or trend
    # Over seeds: mean and sample standard deviation (NaN for fewer than two), in units of the
    # measure, of a reduction as a share; of a trend of the last value's measure less the first's.
    mean: float
    std: float
    # Seeds with a finished run on each side, or at each value of a trend, and of these those that
    # have the measure there, too, which the numbers are made from.
    seeds: int
    n: int
    at_least: float = math.nan  # NaN = no such bound
    at_most: float = math.nan
    computed: bool  # n equal numbers: no sample
    trend: str = ""  # the column; "" of a threshold
    values: tuple[float | tuple[float, ...], ...] = ()  # of that column, in order
    means: tuple[float, ...] = ()  # at these values, of the n seeds
    # The largest of the private runs, reached or not; NaN = no private run.
    epsilon_nominal: float
    epsilon_verified: float
    within_nominal: bool  # no private run's verified epsilon passes its own nominal one
    conditional: bool  # a private run's guarantee is conditional
    # The largest verified epsilon of each side, as `selections` has them; NaN = no private run.
    epsilons: tuple[float, ...]
    verdict: str
    decides: bool = False  # this version


JUDGED_COLUMNS = tuple(field.name for field in fields(Judgement))
VERDICT_COLUMNS = ("claim", "source", "paper", "version", "verdict")


def judge(
    claims: Sequence[ThresholdClaim | TrendClaim],
    measured: pd.DataFrame,
    versions: Sequence[str] = (),
    tuned: Mapping[tuple[str, str], int] | None = None,
    decides: str | None = None,
) -> pd.DataFrame:
    """Compare what a paper claims with what the runs measure.

    Thresholds and sizes are judged on values, or on their differences seed by seed. A claim's
    versions are `several_looks` at it. Nobody beats a rival that was tuned less.

    Args:
        measured: one row a finished run: `m2fdp.claims.frames.RUN_COLUMNS`, measures (NaN where
            a run has none), the study's arms and swept parameters, and `version` where it has them.
        versions: the study's versions, in its order, those without a finished run, too.
        tuned: how many schedules a search has tried, by version and arm; None = none for anybody.
        decides: the version that does; None = none.

    Returns:
        `JUDGED_COLUMNS`, a row a claim and version, in the order of both; `version` is an ordered
        categorical of all versions.

    Raises:
        InputError: as `check_claims`, or runs that a claim does not tell apart, or order.
    """
    measures = [name for name in MEASURES if name in measured.columns]
    check_claims(claims, swept_columns(measured.columns), versions, measures)
    versions = versions or ("",)
    rows = []
    for claim in claims:
        looked = []
        for version in versions:
            if version and claim.versions is not None and version not in claim.versions:
                continue
            runs = measured[measured[VERSION] == version] if version else measured
            if isinstance(claim, TrendClaim):
                looked.append(_judge_trend(claim, version, runs))
            else:
                looked.append(_judge_threshold(claim, version, runs))
        told = iter(intervals.several_looks([look for _, look in looked if look is not None]))
        for row, look in looked:
            verdict = row.verdict if look is None else next(told)
            if verdict == OPEN and row.computed:  # further seeds could tell nothing
                verdict = FAILS
            if verdict in (HOLDS, IN_DIRECTION) and _tuned_more(claim, row.version, tuned or {}):
                verdict = TUNED_LESS
            rows.append(asdict(replace(row, verdict=verdict, decides=row.version == decides)))
    judged = pd.DataFrame(rows, columns=list(JUDGED_COLUMNS))
    return judged.astype({VERSION: pd.CategoricalDtype(list(versions), ordered=True)})


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """One verdict a claim, in `VERDICT_COLUMNS`: that of the version that decides, else the lowest.
    What holds beyond the epsilon that was aimed at says at which.
    """
    rows = []
    for _, versions in judged.groupby("claim", sort=False):
        deciding = versions[versions["decides"]]
        counted = deciding if len(deciding) else versions
        row = counted.iloc[int(counted["verdict"].map(_RANKS).argmin())]
        verdict = row["verdict"]
        if verdict in (HOLDS, IN_DIRECTION):
            if not row["within_nominal"]:
                verdict += f" at ε = {upper_bound(row['epsilon_verified'])}"
                verdict += f" (aimed at {nominal(row['epsilon_nominal'])})"
            verdict += " (conditional)" if row["conditional"] else ""
        rows.append({name: row[name] for name in VERDICT_COLUMNS} | {"verdict": verdict})
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS))


def _tuned_more(
    claim: ThresholdClaim | TrendClaim, version: str, tuned: Mapping[tuple[str, str], int]
) -> bool:
    """Whether the side that a claim speaks for had more schedules tried than its rival."""
    arms = [side.get(ARM) for side in selections(claim).values()]
    counts = [tuned.get((version, str(arm)), 0) for arm in arms]
    if isinstance(claim, TrendClaim) or None in arms or len(arms) < 2:
        return False
    within = claim.at_least is None and claim.at_most is not None and claim.at_most > 0
    return counts[1] > counts[0] if within else counts[0] > counts[1]


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
    if (twice := runs[runs.duplicated(keys, keep=False)]).empty:
        return runs
    _, first = next(iter(twice.groupby(keys, sort=False, dropna=False)))
    columns = ["algorithm", *swept_columns(runs.columns)]
    varied = [key for key in columns if first[key].map(comparable).nunique(dropna=False) > 1]
    remedy = f"select by {' or '.join(varied)} too" if varied else "keep one of them"
    problem = f"selects {len(first)} runs of seed {first['seed'].iloc[0]}; {remedy}"
    raise InputError(f"claim {claim.claim!r}, {side}", selection, problem)


def _about(
    claim: ThresholdClaim | TrendClaim, version: str, *sides: pd.DataFrame
) -> dict[str, Any]:
    """Of a `Judgement`: the claim's words, and what the private ones among the runs promise."""
    words = {name: getattr(claim, name) for name in ("claim", "source", "paper", "measure")}
    private = [runs[runs["privacy"] != "none"] for runs in sides]
    bounds = [runs["epsilon_verified"].astype(float).fillna(math.inf) for runs in private]
    targets = [runs["epsilon_nominal"].astype(float).fillna(math.inf) for runs in private]
    bound, target = pd.concat(bounds), pd.concat(targets)
    keeping = np.isfinite(bound) & (bound <= target * _EPSILON_SLACK)
    return words | {
        "version": version,
        "epsilon_nominal": float(target.max()),
        "epsilon_verified": float(bound.max()),
        "epsilons": tuple(float(each.max()) for each in bounds),
        "within_nominal": bool(keeping.all()),
        "conditional": any((runs["privacy"] == "conditional").any() for runs in private),
    }


def _judge_threshold(
    claim: ThresholdClaim, version: str, runs: pd.DataFrame
) -> tuple[Judgement, _Look | None]:
    """Second: its verdict at a level; None where there are no numbers."""
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

    def look(level: float) -> str:
        interval = summary.interval(level)
        if claim.size is not None:
            return intervals.against_size(interval, claim.size, claim.tolerance)
        verdict = intervals.against_bounds(interval, at_least, at_most)
        gains = (at_least > 0 and interval[0] > SLACK) or (at_most < 0 and interval[1] < -SLACK)
        return IN_DIRECTION if claim.comparison and gains and verdict != HOLDS else verdict

    of_sides = (subject, reference)[: len(sides)]
    judgement = Judgement(
        **_about(claim, version, *of_sides) | asdict(summary),
        comparison=claim.comparison or "value",
        seeds=len(seeds),
        at_least=at_least,
        at_most=at_most,
        computed=summary.std == 0,
        verdict=NOT_REACHED if len(seeds) else UNFINISHED,
    )
    return judgement, look if summary.n else None


def _judge_trend(
    claim: TrendClaim, version: str, runs: pd.DataFrame
) -> tuple[Judgement, _Look | None]:
    """Likewise."""
    runs = _select(claim, "of", runs, claim.trend)
    of_runs = [_place(claim, value) for value in runs[claim.trend]]
    places = sorted(set(of_runs))
    seeds = int((runs.groupby("seed").size() == len(places)).sum())  # with a run at every value
    points = runs.assign(place=[*map(places.index, of_runs)])
    wide = points.pivot(index="seed", columns="place", values=claim.measure).astype(float)
    paired = wide.dropna().to_numpy()
    n = len(paired)
    gain = summarise(paired[:, -1] - paired[:, 0] if n else np.array([]))
    # Without a seed that all values have: of what each has.
    means = paired.mean(axis=0) if n else wide.mean()
    judgement = Judgement(
        **_about(claim, version, runs) | asdict(gain),
        comparison="trend",
        seeds=seeds,
        trend=claim.trend,
        values=tuple(place[0] if len(place) == 1 else place for place in places),
        means=tuple(map(float, means)),
        computed=n > 1 and bool((paired == paired[0]).all()),
        verdict=NOT_REACHED if seeds and len(places) > 1 else UNFINISHED,
    )
    signed = paired if claim.direction == "rises" else -paired
    return judgement, partial(intervals.rising, signed, claim.tie) if n and len(
        places
    ) > 1 else None


def _place(claim: TrendClaim, value: object) -> tuple[float, ...]:
    """Where a value of the trend's column stands in the order: numbers, or lists of numbers."""
    normal = comparable(value)
    numbers = normal if isinstance(normal, tuple) else (normal,)
    if not numbers or not all(isinstance(number, float) for number in numbers):
        problem = f"a run that is selected has {value!r}, which is not a number; select fewer"
        raise InputError(f"claim {claim.claim!r}, trend", claim.trend, problem)
    return numbers
