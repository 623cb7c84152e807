"""A study's runs as tables: what its figures, tables and verdicts are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from m2fdp.claims.declared import TrendClaim
from m2fdp.claims.frames import ARM, RUN_COLUMNS, select_runs
from m2fdp.claims.layout import ACCURACY, OVER_A_RUN
from m2fdp.claims.measures import MEASURES
from m2fdp.core.errors import InputError
from m2fdp.studies.study import Board, Study

# Where a run comes from: how long it took (s), the code, the SHA-256 of its configuration and of
# its split, and the schedule that a search has chosen, dotted parameters as JSON.
ORIGIN = ("seconds", "commit", "configuration", "split", "schedule")
CHANGED = "+changes"  # what follows a commit whose files had changes


@dataclass(frozen=True)
class Record:
    """What the finished runs of a study have found.

    Attributes:
        runs: one row a run, of `m2fdp.claims.measures.measure_runs`, with the measures that the
            study shows or judges, and `ORIGIN`; its index is the cell's name.
        rounds: one row a run and evaluated round, as figures show it; none where they do not.
        search: rows of `m2fdp.studies.search.search_table`; none without a search.
        procedures: rows of `m2fdp.studies.whole.whole_table`, likewise.
        board: what attacks have reconstructed, by arm; none where the study shows none of it.
    """

    runs: pd.DataFrame
    rounds: pd.DataFrame
    search: pd.DataFrame = field(default_factory=pd.DataFrame)
    procedures: pd.DataFrame = field(default_factory=pd.DataFrame)
    board: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> pd.DataFrame:
        """The runs, without where they come from."""
        return self.runs.drop(columns=list(ORIGIN))

    @property
    def compared(self) -> pd.DataFrame:
        """Of these what every run has, and what tells runs apart."""
        return self.measured[[n for n in self.measured if n in RUN_COLUMNS or n not in MEASURES]]


def measures_of(study: Study) -> list[str]:
    """The measures that a study shows, judges or is laid out by, in their order."""
    names = {*study.table, *(claim.measure for claim in study.claims)}
    names |= {claim.trend for claim in study.claims if isinstance(claim, TrendClaim)}
    for panel in () if study.figure is None else study.figure.panels:
        names |= {panel.x, panel.y, panel.lines, *panel.where}
    return [name for name in MEASURES if name in names and name not in RUN_COLUMNS]


def curves_of(study: Study) -> set[str]:
    """What the study's figure shows over a run, of `m2fdp.claims.layout.CURVES`."""
    if study.figure is None:
        return {ACCURACY}
    return {panel.y for panel in study.figure.panels if panel.x in OVER_A_RUN}


def one_run_an_arm(board: Board, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that a board shows.

    Raises:
        InputError: several of one arm.
    """
    chosen = select_runs(runs, board.where)
    twice = chosen[chosen[ARM].duplicated()] if ARM in chosen else chosen.iloc[1:]
    if len(twice):
        name = str(twice[ARM].iloc[0]) if ARM in twice else "(all)"
        raise InputError("board.where", name, "has several runs; name more columns")
    return chosen
