"""A paper's claims, judged against the runs of a study: numbers first, text only where shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Discriminator, Field, Tag, model_validator
from rich.console import Console
from rich.table import Table
from rich.text import Text

from m2fdp.config import Block
from m2fdp.errors import InputError
from m2fdp.reporting.measures import DEVICES, FANOUTS, MEASURES, comparable
from m2fdp.reporting.style import ARM, VERSION, parameter, swept_columns, upper_bound
from m2fdp.reporting.tables import RUN_COLUMNS, markdown, nominal, quantity, verified

# Verdicts of a claim in one version; HOLDS and FAILS are those over all versions too.
HOLDS, HOLDS_NARROWLY = "holds", "holds within one std"
FAILS, FAILS_NARROWLY = "does not hold", "does not hold, within one std"
NOT_REACHED, NOT_MEASURED = "not reached", "not measured"
UNFINISHED, UNPAIRED, ONE_VALUE = "no finished runs", "no shared seeds", "one value only"
_AWAITED = (UNFINISHED, UNPAIRED, ONE_VALUE)

_CONDITIONAL = " (conditional)"

# Verified epsilons are computed by bisection and meet the nominal one up to this.
_EPSILON_SLACK = 1 + 1e-9
# Differences of exact shares such as 0.85 - 0.80 miss a threshold by some 1e-17.
_SLACK = 1e-12


class _Claim(Block):
    """What all claims have. A selection, column -> value, is exactly one run a seed and version."""

    claim: str  # in our own words
    source: str  # where the paper says it
    paper: str  # what the paper says
    measure: str
    of: dict[str, Any]  # a selection; a trend has one for each value of its column
    # The claim is judged in these versions of the study only; null = in each.
    versions: Annotated[list[str], Field(min_length=1)] | None = None
    # Why the runs differ from the paper; shown only where they do.
    reason: str | None = None


class ThresholdClaim(_Claim):
    """A mean over seeds is at least or at most so much.

    The mean is that of the measure itself, of its difference (of - over), or of its reduction
    ((over - of) / over), the latter two paired by seed.
    """

    over: dict[str, Any] | None = None  # a selection
    comparison: Literal["difference", "reduction"] | None = Field(default=None, alias="as")
    at_least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    at_most: Annotated[float, Field(allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _decidable(self) -> ThresholdClaim:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give at_least or at_most, exactly one")
        if (self.over is None) != (self.comparison is None):
            raise ValueError("over and as (difference or reduction) belong together")
        return self


class TrendClaim(_Claim):
    """The measure rises or falls over the values of a column."""

    trend: str
    direction: Literal["rises", "falls"]

    @model_validator(mode="after")
    def _free(self) -> TrendClaim:
        if self.trend in self.of:
            raise ValueError(f"of fixes {self.trend}, over whose values the trend is; remove it")
        return self


def _kind(claim: Any) -> str:
    if isinstance(claim, Mapping):
        return "trend" if {"trend", "direction"} & claim.keys() else "threshold"
    return "trend" if isinstance(claim, TrendClaim) else "threshold"


Claim = Annotated[
    Annotated[ThresholdClaim, Tag("threshold")] | Annotated[TrendClaim, Tag("trend")],
    Discriminator(_kind),
]


@dataclass(frozen=True)
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
    # measure or, of a reduction, as a share. Of a trend: the last mean minus the first, and the
    # larger standard deviation of the two.
    mean: float
    std: float
    # Seeds with a finished run on each side; how many have the measure `of` and `over`; and on both
    # sides, which the numbers are made from. Of a trend: at the value that lacks the measure most,
    # or has the fewest seeds.
    seeds: int
    reached_of: int
    reached_over: int
    n: int
    threshold: float  # NaN of a trend
    trend: str  # the column; "" of a threshold
    values: tuple[float | tuple[float, ...], ...]  # of that column, in order
    means: tuple[float, ...]  # at these values
    # The largest of the private runs, reached or not; NaN = no private run.
    epsilon_nominal: float
    epsilon_verified: float
    within_nominal: bool  # no private run's verified epsilon passes its own nominal one
    conditional: bool  # a private run's guarantee is conditional
    verdict: str


JUDGED_COLUMNS = tuple(field.name for field in fields(Judgement))
VERDICT_COLUMNS = ("claim", "source", "paper", "verdict", "reason")


def check_claims(
    claims: Sequence[ThresholdClaim | TrendClaim],
    columns: Collection[str],
    versions: Collection[str] = (),
    measures: Collection[str] = tuple(MEASURES),
    values: Mapping[str, Collection[Any]] | None = None,
) -> None:
    """Refuse claims that no run could decide; meant to be called before any run starts.

    Args:
        claims: of one study.
        columns: in which the study's runs differ, such as `arm` and dotted keys of parameters.
            `algorithm` is one always; seeds and versions are not for `of` and `over` to select.
        versions: of the study.
        measures: that the study's runs have.
        values: column -> all its values, of those columns whose values are known.

    Raises:
        InputError: two claims in the same words, or an unknown column, measure, value or version.
    """
    values = values or {}
    selectable = [column for column in columns if column not in ("algorithm", "seed", VERSION)]
    for claim, count in Counter(claim.claim for claim in claims).items():
        if count > 1:
            raise InputError(
                "claims", claim, f"is there {count} times; word each claim differently"
            )
    for claim in claims:
        _check_known(claim, "measure", claim.measure, measures)
        for version in claim.versions or ():
            _check_known(claim, "versions", version, versions)
        if isinstance(claim, TrendClaim):
            orders = [key for key in selectable if key != ARM]
            if FANOUTS in orders:
                orders.append(DEVICES)
            _check_known(claim, "trend", claim.trend, orders)
        for side, selection in _sides(claim).items():
            for column, value in selection.items():
                _check_known(claim, side, column, ["algorithm", *selectable])
                if column in values:
                    _check_known(claim, f"{side}.{column}", value, values[column])


def judge(
    claims: Sequence[ThresholdClaim | TrendClaim],
    measured: pd.DataFrame,
    versions: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Compare what a paper claims with what the runs measure.

    A threshold holds if the mean over seeds meets it, and clearly so if it does by at least one
    standard deviation. A trend holds if no step goes the wrong way, and the last mean lies in the
    right direction from the first; both count from the larger standard deviation of the two points.

    Args:
        claims: of one study.
        measured: one row a finished run: `m2fdp.reporting.tables.RUN_COLUMNS`, measures (NaN where
            a run has none), the study's arms and swept parameters, and `version` where it has them.
        versions: of the study, in its order, so that those without a finished run are told; None =
            those of the runs and of the claims. Without a column `version` there are none.

    Returns:
        `JUDGED_COLUMNS`, a row a claim and version, in the order of both.

    Raises:
        InputError: as `check_claims`, several runs of one seed where a claim asks for one, or a
            trend over what are not numbers.
    """
    if VERSION not in measured.columns:
        versions = ()
    elif versions is None:
        named = (claim.versions or () for claim in claims)
        versions = sorted(set(measured[VERSION]).union(*named))
    columns = swept_columns(measured.columns, (*RUN_COLUMNS, *MEASURES))
    measures = [name for name in MEASURES if name in measured.columns]
    check_claims(claims, columns, versions, measures)
    rows = []
    for claim in claims:
        judged = _judge_trend if isinstance(claim, TrendClaim) else _judge_threshold
        for version in versions or ("",):
            if version and claim.versions is not None and version not in claim.versions:
                continue
            runs = measured[measured[VERSION] == version] if version else measured
            rows.append(asdict(judged(claim, version, runs)))
    return pd.DataFrame(rows, columns=list(JUDGED_COLUMNS))


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """One verdict a claim, over the versions of the study.

    A claim holds if it does in a version whose runs keep to their nominal epsilon. Else it holds
    only at the smallest verified epsilon of a version in which it does.

    Args:
        judged: as `judge` returns it.

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


def to_markdown(judged: pd.DataFrame) -> str:
    """Judged claims in Markdown, a row a claim and a column a version."""
    shown = verdicts(judged).rename(
        columns={"paper": "paper says", "reason": "reason if it does not hold"}
    )
    versions = list(dict.fromkeys(judged["version"]))
    for i, version in enumerate(versions):
        rows = judged[judged["version"] == version].to_dict("records")
        texts = {
            row["claim"]: ": ".join(filter(None, (measured_text(row), row["verdict"])))
            for row in rows
        }
        cells = [texts.get(claim, "–") for claim in shown["claim"]]
        shown.insert(3 + i, _heading(version), cells)
    return markdown(shown, list(shown.columns))


def print_claims(judged: pd.DataFrame, console: Console, title: str) -> None:
    """Judged claims in the terminal: under each, what every version measures."""
    result = Table(title=Text(title), title_justify="left")
    result.add_column("claim", max_width=32)
    result.add_column("paper, and measured")
    result.add_column("verdict", max_width=24)
    for overall in verdicts(judged).to_dict("records"):
        result.add_row(
            Text(overall["claim"], "bold"),
            Text(f"{overall['source']}: {overall['paper']}"),
            Text(overall["verdict"], "bold"),
        )
        for row in judged[judged["claim"] == overall["claim"]].to_dict("records"):
            result.add_row(
                Text(f"  {_heading(row['version'])}"),
                Text(measured_text(row)),
                Text(row["verdict"]),
            )
        if overall["reason"]:
            result.add_row(Text("  reason"), Text(overall["reason"]), "")
        result.add_section()
    console.print(result, crop=False)


def measured_text(row: Mapping[str, Any]) -> str:
    """What a row of `judge` measured, with n and the verified epsilon; "" where nothing is."""
    if not row["seeds"]:
        return ""
    parts = []
    if row["comparison"] == "trend":
        parts.append(_course(row))
    elif row["n"]:
        parts.append(_mean_and_std(row))
    if row["n"] < row["seeds"]:
        parts.append(_reached(row))
    if math.isnan(row["epsilon_verified"]):
        parts.append("no DP")
    else:
        privacy = "conditional" if row["conditional"] else "verified"
        parts.append(f"ε = {verified(privacy, row['epsilon_verified'])}")
    return ", ".join(parts)


def _sides(claim: ThresholdClaim | TrendClaim) -> dict[str, dict[str, Any]]:
    """What a claim selects, by the name of the key."""
    over = getattr(claim, "over", None)
    return {"of": claim.of} | ({} if over is None else {"over": over})


def _check_known(
    claim: ThresholdClaim | TrendClaim, key: str, value: object, known: Collection[object]
) -> None:
    if comparable(value) not in map(comparable, known):
        valid = ", ".join(map(str, known)) or "(none in this study)"
        raise InputError(f"claim {claim.claim!r}, {key}", value, f"is none of {valid}")


def _select(
    claim: ThresholdClaim | TrendClaim, side: str, runs: pd.DataFrame, by: str | None = None
) -> pd.DataFrame:
    """The runs that one side of a claim is about, in the order of their seeds.

    Args:
        claim: its selection counts.
        side: `of` or `over`.
        runs: of one version.
        by: the column of a trend, each value of which has runs of its own.

    Raises:
        InputError: several runs of one seed (and value of `by`).
    """
    wanted = _sides(claim)[side]
    chosen = np.ones(len(runs), dtype=bool)
    for column, value in wanted.items():
        chosen &= np.array(
            [comparable(cell) == comparable(value) for cell in runs[column]], dtype=bool
        )
    runs = runs[chosen].sort_values("seed")
    keys = ["seed"] if by is None else ["seed", by]
    twice = runs[runs.duplicated(keys, keep=False)]
    if len(twice):
        _, first = next(iter(twice.groupby(keys, sort=False, dropna=False)))
        columns = ["algorithm", *swept_columns(runs.columns, (*RUN_COLUMNS, *MEASURES))]
        apart = [key for key in columns if first[key].map(comparable).nunique(dropna=False) > 1]
        remedy = f"select by {' or '.join(apart)} too" if apart else "keep one of them"
        raise InputError(
            f"claim {claim.claim!r}, {side}",
            wanted,
            f"selects {len(first)} runs of seed {first['seed'].iloc[0]}; {remedy}",
        )
    return runs


def _guarantees(runs: pd.DataFrame) -> dict[str, Any]:
    """What the private ones among the runs promise, as fields of a `Judgement`."""
    private = runs[runs["privacy"] != "none"]
    bound = private["epsilon_verified"].astype(float).fillna(math.inf)
    target = private["epsilon_nominal"].astype(float).fillna(math.inf)
    kept = np.isfinite(bound) & (bound <= target * _EPSILON_SLACK)
    return {
        "epsilon_nominal": float(target.max()),
        "epsilon_verified": float(bound.max()),
        "within_nominal": bool(kept.all()),
        "conditional": bool((private["privacy"] == "conditional").any()),
    }


def _told(claim: ThresholdClaim | TrendClaim) -> dict[str, str]:
    return {
        "claim": claim.claim,
        "source": claim.source,
        "paper": claim.paper,
        "reason": claim.reason or "",
        "measure": claim.measure,
    }


def _judge_threshold(claim: ThresholdClaim, version: str, runs: pd.DataFrame) -> Judgement:
    sides = {side: _select(claim, side, runs).set_index("seed") for side in _sides(claim)}
    of, over = sides["of"], sides.get("over", sides["of"])
    seeds = of.index.intersection(over.index)
    of, over = of.loc[seeds], over.loc[seeds]
    ours, theirs = of[claim.measure].astype(float), over[claim.measure].astype(float)
    if claim.comparison is None:
        values = ours
    elif claim.comparison == "difference":
        values = ours - theirs
    else:
        # A reduction of nothing is not defined.
        values = (theirs - ours) / theirs.where(theirs != 0)
    values = values.dropna()
    mean, std = float(values.mean()), float(values.std())
    threshold = claim.at_least if claim.at_most is None else claim.at_most
    margin = mean - threshold if claim.at_most is None else threshold - mean
    if len(values):
        verdict = _against(margin, std, _SLACK * max(1.0, abs(threshold)))
    elif len(seeds):
        verdict = _missing(claim.measure)
    else:
        verdict = UNPAIRED if all(map(len, sides.values())) else UNFINISHED
    return Judgement(
        **_told(claim),
        version=version,
        comparison=claim.comparison or "value",
        mean=mean,
        std=std,
        seeds=len(seeds),
        reached_of=int(ours.notna().sum()),
        reached_over=int(theirs.notna().sum()),
        n=len(values),
        threshold=threshold,
        trend="",
        values=(),
        means=(),
        **_guarantees(pd.concat([of, over])),
        verdict=verdict,
    )


def _against(margin: float, std: float, slack: float) -> str:
    """The verdict on a mean that passes its threshold by `margin`; std is NaN for one seed."""
    clear = math.isnan(std) or abs(margin) + slack >= std
    if margin >= -slack:
        return HOLDS if clear else HOLDS_NARROWLY
    return FAILS if clear else FAILS_NARROWLY


def _judge_trend(claim: TrendClaim, version: str, runs: pd.DataFrame) -> Judgement:
    runs = _select(claim, "of", runs, by=claim.trend)
    groups: dict[tuple[float, ...], list[float]] = {}
    for place, value in zip(runs[claim.trend], runs[claim.measure].astype(float), strict=True):
        groups.setdefault(_place(claim, place), []).append(value)
    places = sorted(groups)
    points = [pd.Series(groups[place], dtype=float) for place in places]
    means = np.array([point.mean() for point in points])
    stds = np.array([point.std() for point in points])
    worst = min(points, key=lambda point: (point.count() / len(point), len(point)), default=None)
    seeds, n = (0, 0) if worst is None else (len(worst), int(worst.count()))
    if len(points) < 2:
        verdict = ONE_VALUE if points else UNFINISHED
    elif not n:
        verdict = _missing(claim.measure)
    else:
        verdict = _along(means if claim.direction == "rises" else -means, stds)
    ends = stds[[0, -1]] if points else np.array([math.nan])
    return Judgement(
        **_told(claim),
        version=version,
        comparison="trend",
        mean=float(means[-1] - means[0]) if points else math.nan,
        std=float(np.fmax.reduce(ends)),
        seeds=seeds,
        reached_of=n,
        reached_over=n,
        n=n,
        threshold=math.nan,
        trend=claim.trend,
        values=tuple(place[0] if len(place) == 1 else place for place in places),
        means=tuple(means.tolist()),
        **_guarantees(runs),
        verdict=verdict,
    )


def _along(means: np.ndarray, stds: np.ndarray) -> str:
    """The verdict on means that should rise; a standard deviation is NaN for one seed."""
    stds = np.nan_to_num(stds)
    slack = _SLACK * max(1.0, np.abs(means).max())
    back = np.diff(means) < -np.maximum(stds[1:], stds[:-1]) - slack
    rises = means[-1] - means[0] > max(stds[0], stds[-1]) + slack
    return HOLDS if rises and not back.any() else FAILS


def _place(claim: TrendClaim, value: object) -> tuple[float, ...]:
    """Where a value of the trend's column stands in the order: numbers, or lists of numbers."""
    normal = comparable(value)
    numbers = normal if isinstance(normal, tuple) else (normal,)
    if not numbers or not all(isinstance(number, float) for number in numbers):
        raise InputError(
            f"claim {claim.claim!r}, trend",
            claim.trend,
            f"a run that is selected has {value!r}, which is not a number; select fewer",
        )
    return numbers


def _missing(measure: str) -> str:
    return NOT_REACHED if measure.endswith("_to_target") else NOT_MEASURED


def _over_versions(rows: pd.DataFrame) -> str:
    """The verdict of one claim over its versions, all of which are `rows`."""
    holding = rows[rows["verdict"].isin((HOLDS, HOLDS_NARROWLY))]
    if holding.empty:
        return next(
            verdict
            for verdict in (FAILS, NOT_REACHED, NOT_MEASURED, *_AWAITED)
            if rows["verdict"].str.startswith(verdict).any()
        )
    kept = holding[holding["within_nominal"]]
    if len(kept):
        return HOLDS + (_CONDITIONAL if kept["conditional"].all() else "")
    best = holding.sort_values(["epsilon_verified", "conditional"], kind="stable").iloc[0]
    condition = _CONDITIONAL if best["conditional"] else ""
    # Where runs differ in their nominal epsilon, the largest ones do not tell which pass theirs.
    hidden = best["epsilon_verified"] <= best["epsilon_nominal"] * _EPSILON_SLACK
    return (
        f"holds only at verified ε = {upper_bound(best['epsilon_verified'])} "
        f"(nominal {nominal(best['epsilon_nominal'])}"
        f"{'; some runs pass theirs' if hidden else ''}){condition}"
    )


def _reached(row: Mapping[str, Any]) -> str:
    verb = "reached" if row["measure"].endswith("_to_target") else "measured"
    text = f"{verb} in {row['n']} of {row['seeds']} seeds"
    if row["comparison"] in ("difference", "reduction"):
        text += f" (each side: {row['reached_of']}, {row['reached_over']})"
    return text


def _heading(version: str) -> str:
    return f"measured ({version})" if version else "measured"


def _course(row: Mapping[str, Any]) -> str:
    """`1.0 → 2.3 → 5.1 steps at control.alpha_1 = 0.01, 1, 100 (n = 3)`."""
    means = pd.Series(row["means"], dtype=float)
    unit = MEASURES[row["measure"]].unit
    texts = ["–" if math.isnan(mean) else _written(row["measure"], mean) for mean in means]
    complete = len(means) > 1 and means.notna().all()
    constant = complete and means.max() - means.min() <= _SLACK * max(1.0, means.abs().max())
    values = (
        f"[{', '.join(map(parameter, value))}]" if isinstance(value, tuple) else parameter(value)
        for value in row["values"]
    )
    return (
        " → ".join(texts)
        + (f" {unit}" if unit else "")
        + (" (constant)" if constant else "")
        + f" at {row['trend']} = {', '.join(values)} (n = {row['n']})"
    )


def _mean_and_std(row: Mapping[str, Any]) -> str:
    """`+5.2 ± 0.4 points (n = 5)`; differences and reductions have a sign."""
    mean, std, unit = row["mean"], row["std"], MEASURES[row["measure"]].unit
    if row["comparison"] == "reduction":
        texts, unit = (f"{100 * mean:+.1f}", f"{100 * std:.1f}"), "%"
    elif row["comparison"] == "difference" and not unit:
        # Steps of a curve are far smaller than its height.
        digits = 1 if row["measure"] == "accuracy" else 2
        texts, unit = (f"{100 * mean:+.{digits}f}", f"{100 * std:.{digits}f}"), "points"
    else:
        sign = "+" if row["comparison"] == "difference" and mean >= 0 else ""
        texts = sign + _written(row["measure"], mean), _written(row["measure"], std)
    spread = f" ± {texts[1]}" if row["n"] > 1 else ""
    return f"{texts[0]}{spread}{f' {unit}' if unit else ''} (n = {row['n']})"


def _written(measure: str, value: float) -> str:
    digits = MEASURES[measure].digits
    return quantity(value) if digits is None else f"{value:,.{digits}f}"
