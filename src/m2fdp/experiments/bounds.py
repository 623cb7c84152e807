"""The convergence bounds of a run, beside what was measured along it."""

from __future__ import annotations

import pandas as pd

from m2fdp.algorithms import Plan
from m2fdp.config import PrivacyConfig
from m2fdp.convergence.bound import network_terms
from m2fdp.convergence.descent import round_noise
from m2fdp.convergence.tables import (
    bound_summary,
    bound_table,
    broken_assumptions,
    estimate_constants,
    layer_table,
)
from m2fdp.errors import InputError
from m2fdp.experiments.results import ConvergenceBounds
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.mechanisms import get_mechanism


def bound_run(
    measured: pd.DataFrame,
    plan: Plan,
    mechanism: CalibratedMechanism,
    privacy: PrivacyConfig,
    n_parameters: int,
    sampling_rate: float,
) -> ConvergenceBounds:
    """Both bounds by round and by layer.

    Args:
        measured: of `m2fdp.convergence.measurement.measure_run`.
        n_parameters: M.
        sampling_rate: q, the largest over devices.

    Raises:
        InputError: no gradient has changed along the run, so nothing is known of beta, or models
            are clipped in place of steps.
    """
    if get_mechanism(privacy.mechanism).sends_models:
        raise InputError(
            "privacy.mechanism",
            privacy.mechanism,
            "clips models, and the bounds on convergence are those of clipped steps; use gradient "
            "or upload",
        )
    network, schedule = plan.network, plan.schedule
    constants = estimate_constants(
        measured, mechanism, schedule, privacy, n_parameters, sampling_rate
    )
    noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, n_parameters)
    terms = network_terms(network, [privacy.alpha] * network.tree.depth)
    summary = bound_summary(measured, constants, noise, mechanism, network, schedule, privacy.alpha)
    return ConvergenceBounds(
        bound_table(measured, terms, constants, noise, schedule),
        layer_table(network, terms),
        summary,
        tuple(broken_assumptions(summary)),
    )
