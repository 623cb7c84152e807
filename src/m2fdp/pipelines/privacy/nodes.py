"""Nodes of the privacy pipeline."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from m2fdp.algorithms import Plan
from m2fdp.config import PrivacyConfig, ThreatConfig, TrainingConfig
from m2fdp.data.manifest import shards_of
from m2fdp.errors import InputError
from m2fdp.privacy import ledger
from m2fdp.privacy.calibration import build_mechanism, no_privacy
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.privacy.summary import summary, warnings
from m2fdp.reporting import privacy_figures, tables
from m2fdp.simulation.sampling import sampling_rates

logger = logging.getLogger(__name__)


def calibrate(
    plan: Plan,
    manifest: pd.DataFrame,
    training: TrainingConfig,
    privacy: PrivacyConfig,
    threat: ThreatConfig,
) -> tuple[Mechanism, int]:
    """The mechanism with its noise, and how many rounds the budget affords."""
    plans = plan.schedule.round_plans()
    if plan.private:
        sizes = shards_of(manifest).sizes
        rates = sampling_rates(sizes, training.batch_size)
        mechanism = build_mechanism(plan.network, sizes, rates, plans, privacy, threat)
    else:
        mechanism = no_privacy(plan.network, plans, privacy, threat)
    rounds = mechanism.affordable_rounds(privacy.budget)
    if rounds == 0:
        raise InputError(
            "privacy.budget",
            privacy.budget,
            f"is passed by the first round already, which costs {mechanism.epsilon(1):.3g}",
        )
    return mechanism, rounds


def summarise_privacy(
    mechanism: Mechanism, affordable_rounds: int, training: TrainingConfig, privacy: PrivacyConfig
) -> dict[str, Any]:
    """What the run promises; what a user must know about it goes to the terminal."""
    for line in warnings(mechanism, affordable_rounds, privacy):
        logger.warning(line)
    if affordable_rounds < training.rounds:
        logger.warning(
            "training stops after %d of %d rounds: the next one would pass privacy.budget %g",
            affordable_rounds,
            training.rounds,
            privacy.budget,
        )
    return summary(mechanism, affordable_rounds, privacy)


def tabulate_ledger(mechanism: Mechanism, affordable_rounds: int) -> pd.DataFrame:
    """One row for each observer of each position of a data owner."""
    return ledger.ledger_table(mechanism.ledger, affordable_rounds)


def print_ledger(table: pd.DataFrame) -> None:
    """The ledger in the terminal."""
    tables.print_ledger(table, Console(highlight=False))


def draw_ledger(table: pd.DataFrame) -> Figure:
    """The ledger as a heat map, positions by observers."""
    return privacy_figures.ledger_heat_map(table)


def trace_epsilon(mechanism: Mechanism, affordable_rounds: int) -> pd.DataFrame:
    """Epsilon of each kind of observer after some rounds, to plan a budget."""
    return ledger.epsilon_over_rounds(mechanism.ledger, affordable_rounds)


def draw_epsilon(table: pd.DataFrame, privacy: PrivacyConfig) -> Figure:
    """Epsilon over the rounds, a line for each kind of observer."""
    return privacy_figures.epsilon_over_rounds(table, privacy.epsilon)
