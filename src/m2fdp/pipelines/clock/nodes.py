"""Nodes of the clock pipeline."""

from __future__ import annotations

import pandas as pd
from rich.console import Console

from m2fdp.config import Config
from m2fdp.reporting import clock_tables
from m2fdp.tiering.plan import TierPlan, draw_world, plan_tiers


def plan(config: Config) -> TierPlan:
    """The tiers of all rounds, and their seconds."""
    return plan_tiers(config.tiering, config.clock, draw_world(config.clock, config.seed))


def print_clock(units: pd.DataFrame, rounds: pd.DataFrame) -> None:
    """What a round takes, in the terminal."""
    clock_tables.print_clock(units, rounds, Console(highlight=False))
