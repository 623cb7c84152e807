"""The frames that runs are compared in: their columns, and which runs a selection means."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from m2fdp.claims.measures import MEASURES
from m2fdp.core.errors import InputError, among
from m2fdp.core.metrics import COMPARED, EVALUATED, names_of

if TYPE_CHECKING:
    import pandas as pd

# One row a run.
RUN_COLUMNS = ("algorithm", "seed", "role", "privacy", *names_of(COMPARED))
# One row a run and evaluated round.
HISTORY_COLUMNS = ("run_id", "algorithm", "seed", "round", *names_of(EVALUATED))
# Columns of a study's arms and versions: groups of parameters that go by one name.
ARM, VERSION = "arm", "version"
TAGS = (ARM, VERSION)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


def swept_columns(frame_columns: Iterable[str], fixed: Collection[str] = ()) -> list[str]:
    """The columns that tell runs apart: arm, version and parameters in which they differ."""
    known = {*RUN_COLUMNS, *HISTORY_COLUMNS, *MEASURES, *fixed}
    return [column for column in frame_columns if column not in known]


def in_order(rows: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Rows sorted by columns; numbers within texts count as such: [5, 2] before [10, 5]."""
    from pandas.api.types import is_numeric_dtype  # names of columns alone need no pandas

    def key(column: pd.Series) -> pd.Series:
        if is_numeric_dtype(column):
            return column
        return column.astype(object).map(_with_numbers, na_action="ignore")

    return rows.sort_values(list(columns), key=key, kind="stable", ignore_index=True)


def _with_numbers(value: object) -> tuple[str | float, ...]:
    parts = _NUMBER.split(str(value))  # texts, and a number between each and the next
    return tuple(float(part) if i % 2 else part for i, part in enumerate(parts))


def select_runs(runs: pd.DataFrame, selection: Mapping[str, Any]) -> pd.DataFrame:
    """The runs whose columns have the values, or one of a list of values. As in YAML 1 is the
    column's 1.0, and [0.5] the parameter's text "[0.5]"; names are texts."""
    selected = np.ones(len(runs), bool)
    for column, choice in selection.items():
        if column not in runs:
            raise InputError("where", column, f"is none of {among(column, runs.columns)}")
        selected &= np.array([*map(selecting(column, choice), runs[column])], bool)
    return runs[selected]


def selecting(column: str, choice: Any) -> Callable[[object], bool]:
    """Whether a value of a column is one that `select_runs` would select for a choice."""
    as_value = str if column in TAGS else comparable
    # A list may be the value itself, as a ratio a layer is.
    values = {as_value(value) for value in (choice if isinstance(choice, list) else [])}
    values.add(as_value(choice))
    return lambda value: as_value(value) in values


def comparable(value: object) -> Hashable:
    """A parameter's value, equal for all ways to write it: YAML's, and MLflow's texts."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, TypeError, ValueError):
            return value
    if isinstance(value, (list, tuple)):
        return tuple(comparable(element) for element in value)
    if isinstance(value, bool) or not isinstance(value, Real | None):
        return str(value)
    return None if value is None or math.isnan(value) else float(value)
