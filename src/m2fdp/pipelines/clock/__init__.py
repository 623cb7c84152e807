"""Tiers and seconds from the clock alone: who trains what, how long a round takes, untrained."""

from kedro.pipeline import Pipeline

from m2fdp.core.config import Config
from m2fdp.core.topology.builders import build_tree
from m2fdp.pipelines.datasets import node
from m2fdp.reporting.room_figures import print_clock, tiers_over_rounds
from m2fdp.tiers.plan import TierPlan, draw_world, rounds_table, times_table
from m2fdp.tiers.plan import plan_tiers as tiers_of_world


def count_clients(config: Config) -> int:
    """The devices of the tree."""
    return build_tree(config.topology).n_devices


def plan_tiers(config: Config, n_clients: int) -> TierPlan:
    """The tiers of all rounds, and their seconds."""
    world = draw_world(config.clock, config.seed, config.training.rounds, n_clients)
    return tiers_of_world(config.tiering, config.clock, world)


def create_pipeline() -> Pipeline:
    """Configuration to tables and a figure; neither data nor training."""
    return Pipeline(
        [
            node(count_clients, "config", "n_clients"),
            node(plan_tiers, ["config", "n_clients"], "tier_plan"),
            node(times_table, ["config", "n_clients"], "clock_times", "tabulate_clock_times"),
            node(rounds_table, ["tier_plan", "config"], "clock_rounds", "tabulate_clock_rounds"),
            node(tiers_over_rounds, "clock_rounds", "clock_rounds_figure", "draw_clock_rounds"),
            node(print_clock, "clock_rounds", None),
        ]
    )
