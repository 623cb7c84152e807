"""Tiers and seconds from the clock alone: who trains what, how long a round takes, untrained."""

from kedro.pipeline import Pipeline

from m2fdp.core.config import Config
from m2fdp.pipelines.naming import node
from m2fdp.reporting.room_figures import print_clock, tiers_over_rounds
from m2fdp.tiers.plan import TierPlan, draw_world, rounds_table, times_table
from m2fdp.tiers.plan import plan_tiers as tiers_of_world


def plan_tiers(config: Config) -> TierPlan:
    """The tiers of all rounds, and their seconds."""
    return tiers_of_world(config.tiering, config.clock, draw_world(config.clock, config.seed))


def create_pipeline() -> Pipeline:
    """Configuration to tables and a figure; neither data nor training."""
    return Pipeline(
        [
            node(plan_tiers, "config", "tier_plan"),
            node(times_table, "config", "clock_times", "tabulate_clock_times"),
            node(rounds_table, ["tier_plan", "config"], "clock_rounds", "tabulate_clock_rounds"),
            node(tiers_over_rounds, "clock_rounds", "clock_rounds_figure", "draw_clock_rounds"),
            node(print_clock, "clock_rounds", None),
        ]
    )
