"""Nodes of the privacy pipeline."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from m2fdp.algorithms import Plan
from m2fdp.config import PrivacyConfig, ThreatConfig, TrainingConfig, parse_config
from m2fdp.control.policy import controlled_plan
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import held_by_cloud, shards_of
from m2fdp.errors import InputError
from m2fdp.pipelines.simulating import configured_controller
from m2fdp.privacy import ledger_tables
from m2fdp.privacy.calibration import build_mechanisms, no_privacy
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.privacy.summary import conditions_of, outside_the_promise, summary, warnings
from m2fdp.reporting import privacy_figures, tables
from m2fdp.schedule.rounds import RunPlan
from m2fdp.simulation.sampling import sampling_rates

logger = logging.getLogger(__name__)


def plan_rounds(
    plan: Plan, dataset: Dataset, manifest: pd.DataFrame, parameters: dict[str, Any]
) -> RunPlan:
    """The rounds as scheduled, or as the controller will choose them."""
    config = parse_config(parameters)
    controller = configured_controller(plan, dataset, manifest, config)
    if controller is None:
        return RunPlan((plan.network,), plan.schedule.round_plans())
    return controlled_plan(controller, plan.network, plan.schedule)


def calibrate(
    plan: Plan,
    run_plan: RunPlan,
    manifest: pd.DataFrame,
    training: TrainingConfig,
    privacy: PrivacyConfig,
    threat: ThreatConfig,
) -> tuple[tuple[Mechanism, ...], Mechanism, int]:
    """The mechanisms of the run's networks, the first of them, and how many rounds the budget
    affords."""
    sizes = shards_of(manifest).sizes
    if training.batch_size is not None and training.batch_size > sizes.max():
        logger.warning(
            "training.batch_size = %g is more than any device's records, at most %d: every step "
            "uses all of them, as with null, and sampling protects nobody",
            training.batch_size,
            sizes.max(),
        )
    if plan.private:
        rates = sampling_rates(sizes, training.batch_size)
        mechanisms = build_mechanisms(
            run_plan.networks, sizes, rates, run_plan.rounds, privacy, threat
        )
    else:
        mechanisms = (no_privacy(plan.network, run_plan.rounds, privacy, threat),)
    mechanism = mechanisms[0]
    rounds = mechanism.affordable_rounds(privacy.budget)
    if rounds == 0:
        raise InputError(
            "privacy.budget",
            privacy.budget,
            f"is passed by the first round already, which costs {mechanism.epsilon(1):.3g}",
        )
    return mechanisms, mechanism, rounds


def summarise_privacy(
    mechanism: Mechanism,
    affordable_rounds: int,
    manifest: pd.DataFrame,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    """What the run promises; what a user must know about it goes to the terminal."""
    config = parse_config(parameters)
    privacy, conditions = config.privacy, conditions_of(config)
    for line in warnings(mechanism, affordable_rounds, privacy, conditions):
        logger.warning(line)
    planned = len(mechanism.ledger.plans)
    if affordable_rounds < planned:
        logger.warning(
            "training stops after %d of %d rounds: the next one would pass privacy.budget %g",
            affordable_rounds,
            planned,
            privacy.budget,
        )
    promised = summary(mechanism, affordable_rounds, privacy, conditions)
    if not mechanism.private:
        return promised
    held = {split: len(held_by_cloud(manifest, split)) for split in ("validation", "test")}
    if held["validation"]:
        logger.warning(
            "%d validation records lie in clear with the cloud: ε does not cover them",
            held["validation"],
        )
    n_assumptions = len(promised["assumptions"])
    logger.info("ε rests on %d assumptions; privacy_summary.json lists them.", n_assumptions)
    return promised | {
        "records_in_clear": held,
        "outside_the_promise": outside_the_promise(held["validation"], held["test"]),
    }


def tabulate_ledger(
    mechanism: Mechanism, affordable_rounds: int, parameters: dict[str, Any]
) -> pd.DataFrame:
    """One row for each observer of each position of a data owner."""
    conditions = conditions_of(parse_config(parameters))
    return ledger_tables.ledger_table(mechanism.ledger, affordable_rounds, conditions)


def print_ledger(table: pd.DataFrame, promised: dict[str, Any]) -> None:
    """The ledger in the terminal; without privacy all of it is one line."""
    console = Console(highlight=False)
    if promised["guarantee"] == "none":
        console.print(f"Privacy: {promised['note']}.")
    else:
        tables.print_ledger(table, console)


def draw_ledger(table: pd.DataFrame) -> Figure:
    """The ledger as a heat map, positions by observers."""
    return privacy_figures.ledger_heat_map(table)


def trace_epsilon(mechanism: Mechanism, affordable_rounds: int) -> pd.DataFrame:
    """Epsilon of each kind of observer after some rounds, to plan a budget."""
    return ledger_tables.epsilon_over_rounds(mechanism.ledger, affordable_rounds)


def draw_epsilon(table: pd.DataFrame, privacy: PrivacyConfig) -> Figure:
    """Epsilon over the rounds, a line for each kind of observer."""
    return privacy_figures.epsilon_over_rounds(table, privacy.epsilon)
