"""What a run promises, and who learns how much: before any training."""

import logging
from typing import Any

import pandas as pd
from kedro.pipeline import Pipeline

from m2fdp.control.run import planned_rounds
from m2fdp.experiment import Experiment
from m2fdp.pipelines.datasets import drawing, node
from m2fdp.reporting import tables
from m2fdp.reporting.figures import epsilon_over_rounds, ledger_heat_map
from m2fdp.reporting.pictures import Drawing
from m2fdp.reporting.room_figures import planned_rounds as planned_rounds_figure
from m2fdp.reporting.tables import show

logger = logging.getLogger(__name__)


def summarise_privacy(experiment: Experiment) -> dict[str, Any]:
    """What the run promises; what a user must know about it goes to the terminal."""
    for line in experiment.warnings():
        logger.warning(line)
    for line in experiment.exposed_links():
        logger.info(line)
    promised = experiment.summary()
    if "assumptions" in promised:
        n_assumptions = len(promised["assumptions"])
        logger.info("ε rests on %d assumptions; privacy_summary.json lists them.", n_assumptions)
    return promised


def tell_plan(experiment: Experiment) -> tuple[pd.DataFrame, Drawing | tuple[()]]:
    """What a controller decides of every round before training, as table and figure; no rows and
    nothing to draw without one."""
    plan = planned_rounds(experiment.controller, len(experiment.run_plan.rounds))
    if plan.empty:
        return plan, ()
    low, high, total = (int(plan["K"].agg(which)) for which in ("min", "max", "sum"))
    steps = str(low) if low == high else f"{low} to {high}"
    line = "The controller plans %d rounds; local steps of each: %s, %d in all."
    logger.info(line, len(plan), steps, total)
    return plan, Drawing.of(planned_rounds_figure, plan)


def print_ledger(table: pd.DataFrame, promised: dict[str, Any]) -> None:
    """The ledger in the terminal; without privacy all of it is one line."""
    if promised["guarantee"] == "none":
        show(f"Privacy: {promised['note']}.")
    else:
        tables.print_ledger(table)


def draw_epsilon(table: pd.DataFrame, promised: dict[str, Any], target: float) -> Drawing:
    """Epsilon over the rounds, a line for each kind of observer, and what was asked for."""
    nominal = float(promised.get("epsilon_nominal", target))
    return Drawing.of(epsilon_over_rounds, table, nominal)


def create_pipeline() -> Pipeline:
    """Experiment to promise, ledger, zones, epsilon over the rounds, and a controller's plan."""
    target, traced = "params:privacy.epsilon", "epsilon_over_rounds"
    return Pipeline(
        [
            node(summarise_privacy, "experiment", "privacy_summary"),
            node(Experiment.ledger, "experiment", "privacy_ledger", "tabulate_ledger"),
            node(Experiment.elections, "experiment", "elections", "tabulate_elections"),
            node(Experiment.zones_table, "experiment", "zones_table", "tabulate_zones"),
            node(tell_plan, "experiment", ["planned_rounds", "planned_rounds_figure"]),
            node(print_ledger, ["privacy_ledger", "privacy_summary"], None),
            drawing(ledger_heat_map, "privacy_ledger", "privacy_ledger_figure", "draw_ledger"),
            node(Experiment.epsilon_over_rounds, "experiment", traced, "trace_epsilon"),
            node(draw_epsilon, [traced, "privacy_summary", target], f"{traced}_figure"),
        ]
    )
