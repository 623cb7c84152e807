"""What a run promises about privacy: the noise for it, what is outside it, what to know of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.algorithms import Plan, get_algorithm
from m2fdp.config import Config, FeaturesConfig, PrivacyConfig, ThreatConfig
from m2fdp.data.features.mapping import PIXELS, fitted_on
from m2fdp.data.manifest import held_by_cloud, shards_of
from m2fdp.errors import InputError
from m2fdp.experiments.own_parts import own_parts
from m2fdp.experiments.results import Calibration
from m2fdp.experiments.tiers import seen_in_tiers
from m2fdp.privacy import ledger_tables
from m2fdp.privacy.calibration import build_mechanisms, no_privacy
from m2fdp.privacy.ledger import Ledger, behind_own_heads
from m2fdp.privacy.offices import Offices
from m2fdp.privacy.outside import outside_the_promise
from m2fdp.privacy.releases import OBSERVERS
from m2fdp.privacy.summary import (
    assumptions_of_elections,
    assumptions_of_features,
    assumptions_of_splits,
    assumptions_of_sums,
    conditions_of,
    elections_summary,
    splits_summary,
    summary,
    warnings,
)
from m2fdp.privacy.zone_table import zones_table
from m2fdp.schedule.rounds import RunPlan
from m2fdp.simulation.elections import draw_offices
from m2fdp.simulation.local_rules import adds_up
from m2fdp.simulation.sampling import draw_participants
from m2fdp.simulation.step_sums import step_in_sums
from m2fdp.simulation.survivors import count_lost
from m2fdp.streams import seeded
from m2fdp.topology.network import Network

# Which sums are lost is drawn before training; more local steps are not looked at.
_MOST_STEPS_COUNTED = 20_000


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
    offices = _offices(config, run_plan)
    if plan.private:
        mechanisms = build_mechanisms(
            run_plan.networks,
            shard_sizes,
            rates,
            run_plan.rounds,
            privacy,
            threat,
            partial(_as_drawn, _attendance(config, run_plan), offices, plan),
        )
    else:
        sees = seen_in_tiers(config)
        without = no_privacy(run_plan.networks[0], run_plan.rounds, privacy, threat, sees)
        mechanisms = (replace(without, ledger=replace(without.ledger, offices=offices)),)
    rounds = mechanisms[0].affordable_rounds(privacy.budget)
    if rounds == 0:
        raise InputError(
            "privacy.budget",
            privacy.budget,
            f"is passed by the first round already, which costs {mechanisms[0].epsilon(1):.3g}",
        )
    return Calibration(mechanisms, rounds, own_parts(config, plan))


def conditions(config: Config, calibrated: Calibration) -> list[str]:
    """What epsilon rests on and can't be defended, or enforced of the user's own code."""
    own = [part.assumption for part in calibrated.own_parts if not part.enforced]
    return conditions_of(config) + own


def _as_drawn(
    attendance: np.ndarray | None, offices: Offices | None, plan: Plan, ledger: Ledger
) -> Ledger:
    """The ledger of those who will really come, and of what rules make of noise."""
    ledger = replace(ledger, attendance=attendance, offices=offices)
    return ledger if adds_up(plan.rules.local) else behind_own_heads(ledger)


def _attendance(config: Config, run_plan: RunPlan) -> np.ndarray | None:
    """Who joins which round, bool (T, N_L), as training will draw it; None where that can't be
    known, or nothing is left to chance."""
    (network, *_) = run_plan.networks
    if network.chance is None or config.privacy.secure_rng:
        return None
    streams = seeded(config.seed, b"").sampling
    rounds = range(1, len(run_plan.rounds) + 1)
    return np.stack([draw_participants(network, streams, round_) for round_ in rounds])


def _offices(config: Config, run_plan: RunPlan) -> Offices | None:
    """Who is elected in which round, as training will draw it; None where that can't be known, or
    nobody is."""
    (network, *_) = run_plan.networks
    if not network.elected or config.privacy.secure_rng:
        return None
    streams = seeded(config.seed, b"").sampling
    return draw_offices(network, streams, run_plan.rounds, config.threat.colluding + 1)


def threat_of(config: Config, plan: Plan) -> ThreatConfig:
    """The configured threat, and whom the algorithm distrusts whatever it says."""
    unknown = plan.distrusts - OBSERVERS.keys()
    if unknown:
        raise InputError(
            "algorithm",
            config.algorithm,
            f"distrusts {min(unknown)}, who is no kind of observer; valid: {', '.join(OBSERVERS)}",
        )
    added = sorted(plan.distrusts - set(config.threat.distrusted))
    distrusted = [*config.threat.distrusted, *added]
    return config.threat.model_copy(update={"distrusted": distrusted})


def ledger(config: Config, calibrated: Calibration) -> pd.DataFrame:
    """One row for each observer of each position of a data owner; see
    `m2fdp.privacy.ledger_tables.ledger_table`."""
    lines, rounds = calibrated.mechanism.ledger, calibrated.affordable_rounds
    return ledger_tables.ledger_table(lines, rounds, conditions(config, calibrated))


def elections(network: Network, calibrated: Calibration) -> pd.DataFrame:
    """One row for each device; see `m2fdp.privacy.ledger_tables.elections_table`."""
    offices, rounds = calibrated.mechanism.ledger.offices, calibrated.affordable_rounds
    return ledger_tables.elections_table(network, offices, rounds)


def epsilon_over_rounds(calibrated: Calibration) -> pd.DataFrame:
    """Epsilon of each kind of observer after some rounds, to plan a budget."""
    lines, rounds = calibrated.mechanism.ledger, calibrated.affordable_rounds
    return ledger_tables.epsilon_over_rounds(lines, rounds)


def asked(privacy: PrivacyConfig) -> str:
    """What noise is calibrated to, in words."""
    if privacy.noise_multiplier is not None:
        return f"{privacy.noise_multiplier:g} times the sensitivity"
    return f"epsilon {privacy.epsilon:g}"


def zones(config: Config, network: Network, calibrated: Calibration) -> pd.DataFrame:
    """See `m2fdp.privacy.zone_table.zones_table`."""
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    return zones_table(network, mechanism, rounds, config.privacy, config.threat.colluding)


def summarise(
    config: Config, calibrated: Calibration, manifest: pd.DataFrame, served: pd.DataFrame
) -> dict[str, Any]:
    """What the run promises, ready for JSON; see `m2fdp.privacy.summary.summary`.

    Args:
        served: of `elections`.
    """
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    promised = summary(mechanism, rounds, config.privacy, conditions(config, calibrated))
    if not mechanism.private:
        return promised
    held = {split: len(held_by_cloud(manifest, split)) for split in ("validation", "test")}
    of_sums = assumptions_of_sums(config.secure_aggregation, config.threat.colluding)
    sources = fitted_on(config.features)
    others = of_sums + assumptions_of_elections(served) + assumptions_of_features(sources)
    others += assumptions_of_splits(mechanism.ledger, config.privacy)
    others += [part.assumption for part in calibrated.own_parts if part.enforced]
    own_code = [part.record for part in calibrated.own_parts]
    in_epochs = get_algorithm(config.algorithm).tiers is not None
    return promised | {
        **splits_summary(mechanism.ledger, config.privacy, in_epochs),
        "assumptions": promised["assumptions"] + others,
        **({"features_fitted_on": sources} if sources else {}),
        **({"own_code": own_code} if own_code else {}),
        "records_in_clear": held,
        "outside_the_promise": outside_the_promise(held["validation"], held["test"]),
        **elections_summary(served),
    }


def _of_lost_sums(config: Config, calibrated: Calibration, run_plan: RunPlan) -> list[str]:
    """How many sums nobody will read; not where nothing can be foreseen, or counting takes long."""
    (network, *_), mechanism = run_plan.networks, calibrated.mechanism
    plans = run_plan.rounds[: calibrated.affordable_rounds]
    steps = sum(len(plan.layers) for plan in plans)
    if not network.sums.dropout or config.privacy.secure_rng or steps > _MOST_STEPS_COUNTED:
        return []
    every_step = step_in_sums(network, mechanism)
    lost, total = count_lost(network, plans, seeded(config.seed, b"").sampling, every_step)
    if not lost:
        return []
    return [
        f"{lost:,} of {total:,} sums lose too many senders to be read: training goes on as if "
        "none of them had moved (secure_aggregation.dropout, threshold)"
    ]


def _of_idle_keys(features: FeaturesConfig) -> list[str]:
    """What was asked of features where there are none."""
    if features.map != PIXELS:
        return []
    default = FeaturesConfig().model_dump()
    return [
        f"features.{key} changes nothing, as features.map is {PIXELS}"
        for key, value in features.model_dump().items()
        if value != default[key]
    ]


def warn(
    config: Config, calibrated: Calibration, manifest: pd.DataFrame, run_plan: RunPlan
) -> list[str]:
    """A line for each thing that a user can change and should know before trusting epsilon, or
    what a run will make of it."""
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    privacy, batch_size = config.privacy, config.training.batch_size
    lines, most = [], int(shards_of(manifest).sizes.max())
    if batch_size is not None and batch_size > most:
        lines.append(
            f"training.batch_size = {batch_size:g} is more than any device's records, at most "
            f"{most}: every step uses all of them, as with null, and sampling protects nobody"
        )
    lines += _of_idle_keys(config.features)
    lines += warnings(mechanism, rounds, privacy, conditions(config, calibrated))
    planned = len(mechanism.ledger.plans)
    if rounds < planned:
        lines.append(
            f"training stops after {rounds} of {planned} rounds: the next one would pass "
            f"privacy.budget {privacy.budget:g}"
        )
    lines += _of_lost_sums(config, calibrated, run_plan)
    held = len(held_by_cloud(manifest, "validation"))
    if mechanism.private and held:
        lines.append(
            f"{held} validation records lie in clear with the cloud: ε does not cover them"
        )
    return lines
