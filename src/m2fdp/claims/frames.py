"""The frames that runs are compared in: their columns, and which runs a selection means."""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable, Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.errors import InputError

# One row a run.
RUN_COLUMNS = (
    "algorithm",
    "seed",
    "role",
    "privacy",
    "accuracy",
    "loss",
    "epsilon_nominal",
    "epsilon_verified",
    "energy_j",
    "delay_s",
)
# One row a run and evaluated round.
HISTORY_COLUMNS = (
    "run_id",
    "algorithm",
    "seed",
    "round",
    "accuracy",
    "loss",
    "energy_j",
    "delay_s",
    "epsilon",
)
# Columns of a study's arms and versions: groups of parameters that go by one name.
ARM, VERSION = "arm", "version"
TAGS = (ARM, VERSION)


def swept_columns(frame_columns: Iterable[str], own: Iterable[str]) -> list[str]:
    """The columns beyond a frame's own: arm and parameters in which its runs differ."""
    known = set(own)
    return [column for column in frame_columns if column not in known]


def select_runs(runs: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The runs whose columns have the values.

    Args:
        where: for each column its value or a list of values, as YAML has them: 1 is the column's
            1.0, and [0.5] the parameter's text "[0.5]". Names of arms and versions are texts.

    Raises:
        InputError: there is no such column.
    """
    kept = np.ones(len(runs), bool)
    for column, wanted in where.items():
        if column not in runs:
            raise InputError("where", column, f"is none of {', '.join(runs.columns)}")
        as_value = str if column in TAGS else comparable
        # A list may be the value itself, as a ratio a layer is.
        values = {as_value(value) for value in (wanted if isinstance(wanted, list) else [])}
        values.add(as_value(wanted))
        kept &= np.array([as_value(value) in values for value in runs[column]], bool)
    return runs[kept]


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
