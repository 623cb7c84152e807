"""The noise of a run: its mechanisms, and how many rounds the budget affords."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config, ThreatConfig
from m2fdp.core.engine.local_rules import adds_up
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.results import Calibration, own_parts
from m2fdp.core.privacy.calibration import build_mechanisms, moved_by_joining, no_privacy
from m2fdp.core.privacy.ledger import Ledger, behind_own_heads, build_ledger
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.scores import score_deviation, with_scores
from m2fdp.core.privacy.sight import OBSERVERS
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import RunPlan


def calibrate(
    config: Config, plan: Plan, run_plan: RunPlan, shard_sizes: np.ndarray, rates: np.ndarray
) -> Calibration:
    """The mechanisms for these shards and rounds, and the rounds that the budget affords.

    Args:
        plan: the algorithm's.
        shard_sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), q_j.

    Raises:
        InputError: the target can't be met for an observer that `threat` or the algorithm
            distrusts, or the budget is passed by the first round.
    """
    privacy, threat = config.privacy, threat_of(config, plan)
    if plan.private:
        inputs = shard_sizes, rates, run_plan.rounds, privacy, threat
        mechanisms = build_mechanisms(
            [Premises(network, *inputs) for network in run_plan.networks],
            partial(_as_drawn, config, plan, run_plan),
        )
        if config.partition.held_out_by == "devices":
            ledger = with_scores(mechanisms[0].ledger, score_deviation(privacy))
            mechanisms = tuple(replace(each, ledger=ledger) for each in mechanisms)
    else:
        mechanism = no_privacy(run_plan.networks[0], run_plan.rounds, privacy, threat)
        ledger = _as_known(config, run_plan, mechanism.ledger)
        mechanisms = (replace(mechanism, ledger=ledger),)
    rounds = mechanisms[0].affordable_rounds(privacy.budget)
    if rounds == 0:
        raise InputError(
            "privacy.budget",
            privacy.budget,
            f"is passed by the first round already, which costs {mechanisms[0].epsilon(1):.3g}",
        )
    return Calibration(mechanisms, rounds, own_parts(config, plan))


def ledger_behind(
    config: Config,
    plan: Plan,
    run_plan: RunPlan,
    devices: tuple[np.ndarray, np.ndarray],
    noise: Sequence[np.ndarray],
) -> Ledger:
    """The ledger of a run of one network, were its noise of other deviations.

    Args:
        devices: shard sizes and sampling rates, as those of `calibrate`.
        noise: deviations by layer, as `build_ledger` takes them.
    """
    (network, *_), privacy = run_plan.networks, config.privacy
    premises = Premises(network, *devices, run_plan.rounds, privacy, threat_of(config, plan))
    units = get_mechanism(privacy.mechanism).units(premises) * moved_by_joining(network)
    ledger = build_ledger(premises, noise, units)
    return _as_drawn(config, plan, run_plan, ledger)


def _as_drawn(config: Config, plan: Plan, run_plan: RunPlan, ledger: Ledger) -> Ledger:
    """The ledger of those who will really come, and of what rules make of noise."""
    ledger = _as_known(config, run_plan, ledger)
    return ledger if adds_up(plan.rules.local) else behind_own_heads(ledger)


def _as_known(config: Config, run_plan: RunPlan, ledger: Ledger) -> Ledger:
    """The ledger with what rooms know of the run before training."""
    for of_room in brought("ledgers"):
        ledger = of_room(config, run_plan, ledger)
    return ledger


def threat_of(config: Config, plan: Plan) -> ThreatConfig:
    """The configured threat, and whom the algorithm distrusts whatever it says."""
    others = plan.distrusts - OBSERVERS.keys()
    if others:
        raise InputError(
            "algorithm",
            config.algorithm,
            f"distrusts {min(others)}, who is no kind of observer; valid: {', '.join(OBSERVERS)}",
        )
    added = sorted(plan.distrusts - set(config.threat.distrusted))
    distrusted = [*config.threat.distrusted, *added]
    return config.threat.model_copy(update={"distrusted": distrusted})
