"""What a study declares: panels of a figure, and a paper's claims, checked before any run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from m2fdp.claims.frames import ARM, VERSION, comparable
from m2fdp.claims.measures import FANOUTS, MEASURES, SIZES
from m2fdp.core import metrics
from m2fdp.core.blocks import Block
from m2fdp.core.errors import InputError, among

# As x: a curve over the rounds, or over the simulated seconds that they took, of one of `curves`.
ROUND, DELAY = "round", metrics.DELAY.name
OVER_A_RUN = (ROUND, DELAY)
ACCURACY, LOSS = metrics.ACCURACY.name, metrics.LOSS.name


def curves() -> tuple[str, ...]:
    """The metrics of a run that are drawn over it."""
    return (ACCURACY, LOSS, *metrics.OWN)


class Panel(Block):
    """One plot of a figure: which runs, over what, and what tells its lines apart."""

    title: str
    # `round`, `delay_s`, or a column in which the runs differ: lines if it has numbers, else dots.
    x: str
    y: str = ACCURACY  # of m2fdp.claims.measures.MEASURES
    # For each column its value or a list of values; all runs where it is empty.
    where: dict[str, Any] = Field(default_factory=dict)
    lines: str = ARM  # the column with a line for each value
    log_x: bool = False


class Layout(Block):
    """The panels of a figure, row by row."""

    columns: Annotated[int, Field(ge=1)] = 2
    panels: Annotated[list[Panel], Field(min_length=1)]
    # What axes and legends call a column; by default its own name.
    names: dict[str, str] = Field(default_factory=dict)


class _Claim(Block):
    """What all claims have. A selection, column -> value, is one run a seed and version."""

    claim: str  # in our own words
    source: str  # where the paper says it
    paper: str  # what the paper says
    measure: str
    of: dict[str, Any]  # a selection; a trend has one for each value of its column
    # The claim is judged in these versions of the study only; null = in each.
    versions: Annotated[list[str], Field(min_length=1)] | None = None


class ThresholdClaim(_Claim):
    """A mean over seeds is above or below so much, or between the two, or it is of a size.

    Just meeting a bound is not enough: a tie is no gain. The mean is that of the measure itself, of
    its difference (of - over), or of its reduction ((over - of) / over), these two paired by seed.
    """

    over: dict[str, Any] | None = None  # a selection
    comparison: Literal["difference", "reduction"] | None = Field(default=None, alias="as")
    at_least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    at_most: Annotated[float, Field(allow_inf_nan=False)] | None = None
    # What the paper measured: it is on this side of zero, and near this, by a share of it.
    size: Annotated[float, Field(allow_inf_nan=False)] | None = None
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.5

    @model_validator(mode="after")
    def _decidable(self) -> ThresholdClaim:
        bounded = self.at_least is not None or self.at_most is not None
        if bounded == (self.size is not None) or self.size == 0:
            raise ValueError("give at_least, at_most or both, or a size other than 0 alone")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("at_least is above at_most; nothing lies between them")
        if (self.over is None) != (self.comparison is None):
            raise ValueError("over and as (difference or reduction) belong together")
        return self


class TrendClaim(_Claim):
    """The measure rises or falls over the values of a column."""

    trend: str
    direction: Literal["rises", "falls"]
    # A change that counts as none, in units of the measure.
    tie: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

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


def check_claims(
    claims: Sequence[ThresholdClaim | TrendClaim],
    columns: Collection[str],
    versions: Collection[str] = (),
    measures: Collection[str] = MEASURES,
    values: Mapping[str, Collection[Any]] | None = None,
) -> None:
    """Refuse claims that no run could decide; meant to be called before any run starts.

    Args:
        columns: what the study's runs differ in, beside `algorithm`.
        values: column -> all its values, of those columns whose values are known.
    """
    values = values or {}
    selectable = [column for column in columns if column not in ("algorithm", "seed", VERSION)]
    for words, count in Counter(claim.claim for claim in claims).items():
        if count > 1:
            problem = f"is there {count} times; word each claim differently"
            raise InputError("claims", words, problem)
    for claim in claims:
        _check_known(claim, "measure", claim.measure, measures)
        for version in claim.versions or ():
            _check_known(claim, "versions", version, versions)
        if isinstance(claim, TrendClaim):
            orders = [key for key in selectable if key != ARM]
            if FANOUTS in orders:
                orders.extend(SIZES)
            _check_known(claim, "trend", claim.trend, orders)
        for side, selection in selections(claim).items():
            for column, value in selection.items():
                _check_known(claim, side, column, ["algorithm", *selectable])
                if column in values:
                    _check_known(claim, f"{side}.{column}", value, values[column])


def selections(claim: ThresholdClaim | TrendClaim) -> dict[str, dict[str, Any]]:
    """What a claim selects: `of` -> column -> value, and `over` likewise where it compares."""
    reference = getattr(claim, "over", None)
    return {"of": claim.of} | ({} if reference is None else {"over": reference})


def _check_known(
    claim: ThresholdClaim | TrendClaim, key: str, value: object, valid: Collection[object]
) -> None:
    if comparable(value) not in map(comparable, valid):
        names = among(value, valid, "(none in this study)")
        raise InputError(f"claim {claim.claim!r}, {key}", value, f"is none of {names}")
