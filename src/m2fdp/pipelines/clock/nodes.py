"""Nodes of the clock pipeline."""

from __future__ import annotations

import pandas as pd
from rich.console import Console

from m2fdp.config import Config
from m2fdp.reporting import clock_tables
from m2fdp.tiering import tables
from m2fdp.tiering.plan import TierPlan, draw_world, plan_tiers


def plan(config: Config) -> TierPlan:
    """The tiers of all rounds, and their seconds."""
    return plan_tiers(config.tiering, config.clock, draw_world(config.clock, config.seed))


def tabulate_times(config: Config) -> pd.DataFrame:
    """Seconds by profile and tier, in both units."""
    return tables.times_table(config.tiering, config.clock)


def tabulate_rounds(tier_plan: TierPlan, config: Config) -> pd.DataFrame:
    """Seconds and clients by tier, round by round."""
    return tables.rounds_table(tier_plan, config.tiering, config.clock)


def tabulate_units(config: Config) -> pd.DataFrame:
    """A round of D's start, by what a rate counts."""
    return tables.units_table(config.clock)


def tabulate_table_1(config: Config) -> pd.DataFrame:
    """Every client in one tier."""
    return tables.table_1(config.clock)


def tabulate_table_2(config: Config) -> pd.DataFrame:
    """Times by tier over tier 1's."""
    return tables.table_2(config.clock)


def tabulate_table_4(config: Config) -> pd.DataFrame:
    """Rounds by the number of clients."""
    return tables.table_4(config.tiering, config.clock, config.seed)


def tabulate_table_11(config: Config) -> pd.DataFrame:
    """Who has which modules."""
    return tables.table_11(config.clock)


def tabulate_figure_3(config: Config) -> pd.DataFrame:
    """Rounds by the number of tiers."""
    return tables.figure_3(config.tiering, config.clock, config.seed)


def print_clock(units: pd.DataFrame, rounds: pd.DataFrame) -> None:
    """What a round takes, in the terminal."""
    clock_tables.print_clock(units, rounds, Console(highlight=False))
