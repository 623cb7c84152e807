"""The clock pipeline."""

from kedro.pipeline import Node, Pipeline

from m2fdp.pipelines.clock import nodes
from m2fdp.reporting import clock_figures
from m2fdp.tiering import tables

_TABLES = {
    "clock_times": tables.times_table,
    "clock_units": tables.units_table,
    "clock_table1": tables.table_1,
    "clock_table2": tables.table_2,
    "clock_table4": tables.table_4,
    "clock_table11": tables.table_11,
    "clock_fig3": tables.figure_3,
}
_FIGURES = {
    "clock_rounds": clock_figures.tiers_over_rounds,
    "clock_units": clock_figures.both_units,
    "clock_table1": clock_figures.one_tier_for_all,
    "clock_table2": clock_figures.normalised_times,
    "clock_table4": clock_figures.rounds_by_clients,
    "clock_table11": clock_figures.splits,
    "clock_fig3": clock_figures.rounds_by_tiers,
}


def create_pipeline() -> Pipeline:
    """Configuration to tables and figures; neither data nor training."""
    tabulated = [
        Node(function, "config", name, name=f"tabulate_{name}")
        for name, function in _TABLES.items()
    ]
    figures = [
        Node(function, name, f"{name}_figure", name=f"draw_{name}")
        for name, function in _FIGURES.items()
    ]
    return Pipeline(
        [
            Node(nodes.plan, "config", "tier_plan", name="plan_tiers"),
            Node(
                tables.rounds_table,
                ["tier_plan", "config"],
                "clock_rounds",
                name="tabulate_clock_rounds",
            ),
            *tabulated,
            *figures,
            Node(nodes.print_clock, ["clock_units", "clock_rounds"], None, name="print_clock"),
        ]
    )
