"""D's tables from the clock alone: who trains what, and how long a round takes, untrained."""

from kedro.pipeline import Pipeline

from m2fdp.core.config import Config
from m2fdp.pipelines.naming import node
from m2fdp.reporting import clock_figures
from m2fdp.reporting.tables import print_clock
from m2fdp.tiers import tables
from m2fdp.tiers.plan import TierPlan, draw_world
from m2fdp.tiers.plan import plan_tiers as tiers_of_world

_TABLES = {
    "clock_times": tables.times_table,
    "clock_units": tables.units_table,
}
_FIGURES = {
    "clock_rounds": clock_figures.tiers_over_rounds,
    "clock_units": clock_figures.both_units,
}


def plan_tiers(config: Config) -> TierPlan:
    """The tiers of all rounds, and their seconds."""
    return tiers_of_world(config.tiering, config.clock, draw_world(config.clock, config.seed))


def create_pipeline() -> Pipeline:
    """Configuration to tables and figures; neither data nor training."""
    inputs = {"clock_rounds": ["tier_plan", "config"]} | dict.fromkeys(_TABLES, "config")
    made_by = {"clock_rounds": tables.rounds_table} | _TABLES
    return Pipeline(
        [
            node(plan_tiers, "config", "tier_plan"),
            *(node(made_by[name], inputs[name], name, f"tabulate_{name}") for name in made_by),
            *(
                node(draw, name, f"{name}_figure", f"draw_{name}")
                for name, draw in _FIGURES.items()
            ),
            node(print_clock, ["clock_units", "clock_rounds"], None),
        ]
    )
