"""Numbers that are measured of a run, each declared once: what it is called and how it is written.

Records, run pages, tables, figures and claims read the declarations here. A user declares a
metric of their own in a file of their own, and `training.metrics` names it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from m2fdp.core.errors import InputError
from m2fdp.core.formatting import EPSILON_NAMES, quantity
from m2fdp.core.rooms import Catalogue

if TYPE_CHECKING:
    import pandas as pd

KEY = "training.metrics"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Metric:
    """A number that is measured of runs.

    Attributes:
        name: name of the column in tables and of the tracked metric.
        value: function from the labels int64 (R,) and the model's scores (R, C) of the held-out
            records to one number; of labels that are numbers, both are in their units. It may take
            the records' `losses` (R,) by that name. Arrays are NumPy's and can't be written to.
            None = the number comes from the engine.
        label: text on axes and in tables, with the unit; the name where it is left out.
        unit: empty = none.
        digits: digits after the decimal point of a mean over seeds; None = three in all.
        share: whether it is a share of one, so that differences are told in points.
        bound: whether it bounds from above, so that the largest over seeds counts.
    """

    name: str
    value: Callable[..., Any] | None = None
    label: str = ""
    unit: str = ""
    digits: int | None = None
    share: bool = False
    bound: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            text = "is no name; valid: small letters, digits and _, beginning with a letter"
            raise InputError("Metric.name", self.name, text)
        if self.value is not None and not callable(self.value):
            raise InputError("Metric.value", self.value, "is no function of labels and scores")
        if self.digits is not None and (type(self.digits) is not int or not 0 <= self.digits <= 9):
            raise InputError("Metric.digits", self.digits, "valid: a whole number from 0 to 9")
        object.__setattr__(self, "label", self.label or self.name)

    @property
    def words(self) -> str:
        """The label without its unit."""
        return self.label.removesuffix(f" ({self.unit})")

    def text(self, value: float) -> str:
        """A mean over seeds; a dash where there is none."""
        if math.isfinite(value):
            return quantity(value) if self.digits is None else f"{value:,.{self.digits}f}"
        return "–" if math.isnan(value) else "∞"

    def of_run(self, value: float) -> str:
        """The value of one run, with its unit: one digit more than a mean has."""
        kind = "f" if self.share else "g"
        text = quantity(value) if self.digits is None else f"{value:.{self.digits + 1}{kind}}"
        return f"{text} {self.unit}".rstrip()

    def read_in(self, units: Callable[[Any], Any]) -> Metric:
        """The metric that is given labels and scores in other units."""
        value: Callable[..., Any] = self.value  # type: ignore[assignment]  # one of records

        @wraps(value)
        def converted(labels: Any, scores: Any, **more: Any) -> Any:
            return value(units(labels), units(scores), **more)

        return replace(self, value=converted)


ACCURACY = Metric("accuracy", label="accuracy", digits=3, share=True)
LOSS = Metric("loss", label="loss", digits=3)
ENERGY = Metric("energy_j", label="energy (J)", unit="J")
DELAY = Metric("delay_s", label="delay (s)", unit="s")
EPSILON = Metric("epsilon", label="ε so far", bound=True)
EPSILON_NOMINAL = Metric("epsilon_nominal", label="ε nominal", bound=True)
EPSILON_VERIFIED = Metric(EPSILON_NAMES["verified"], label="ε verified", bound=True)
# What devices tell of the records that they hold out, behind noise; after the last round.
SCORE = Metric("score", label="score", digits=3, share=True)
# Of every round, evaluated or not.
WALL = Metric("wall_s", label="wall time of a round (s)", unit="s")
ROUNDS = Metric("rounds_trained", label="rounds trained", digits=0)

# Columns of an evaluated round, in this order; the users' own come behind.
EVALUATED = (ACCURACY, LOSS, ENERGY, DELAY, EPSILON)
# Columns of a run beside other runs, in this order.
COMPARED = (ACCURACY, LOSS, EPSILON_NOMINAL, EPSILON_VERIFIED, ENERGY, DELAY)
OF_CORE = {*EVALUATED, *COMPARED, SCORE, WALL, ROUNDS}
# Those of rooms, which a configuration names as they are called.
METRICS: Catalogue[Metric] = Catalogue("metrics", {})
# Metrics of the users' own that this process has loaded, by their names in tables.
OWN: dict[str, Metric] = {}


def names_of(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """The names of some metrics."""
    return tuple(metric.name for metric in metrics)


def shown() -> tuple[Metric, ...]:
    """What a run's page and the terminal show of a run: quality, the user's own metrics, costs."""
    return (ACCURACY, LOSS, *OWN.values(), ENERGY, DELAY)


def of_last(row: Mapping[str, Any] | pd.Series) -> dict[str, float]:
    """What a run has reached by its last evaluated round, by the metrics' names. A metric of one's
    own may be absent; so is the accuracy where labels are numbers."""
    there = (name for name in names_of(shown()) if not math.isnan(row.get(name, math.nan)))
    return {name: float(row[name]) for name in there}


def leading(row: Mapping[str, Any] | pd.Series) -> Metric:
    """What an evaluated round is judged by first: accuracy, or, where labels are numbers, the first
    metric that is there."""
    every = (ACCURACY, *OWN.values())
    return next((each for each in every if not math.isnan(row.get(each.name, math.nan))), LOSS)


def told(reached: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `of_last` returns in words, and written as numbers of one run."""
    return [
        (metric.words, metric.of_run(reached[metric.name]))
        for metric in shown()
        if metric.name in reached
    ]
