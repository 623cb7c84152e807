"""The convergence bounds of a run, beside what was measured along it."""

from __future__ import annotations

import pandas as pd

from m2fdp.convergence.bound import network_terms
from m2fdp.convergence.descent import round_noise
from m2fdp.convergence.measurement import measure_run
from m2fdp.convergence.tables import (
    bound_summary,
    bound_table,
    broken_assumptions,
    estimate_constants,
    layer_table,
)
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.checks import check_bound, check_equal_rounds
from m2fdp.core.experiment.results import ConvergenceBounds
from m2fdp.core.models.checks import check_one_by_one


def measure(assembly: Assembly) -> pd.DataFrame:
    """See `Experiment.measure`."""
    check_equal_rounds(assembly.config, assembly.plan)
    model = assembly.model
    if model.is_own:
        check_one_by_one(model.name, model.module, assembly.input_shape, "what is measured")
    rounds = assembly.run_plan.rounds[: assembly.calibration.affordable_rounds]
    return measure_run(assembly.process(), rounds, assembly.config.training.evaluate_every)


def bound_run(assembly: Assembly, measured: pd.DataFrame | None) -> ConvergenceBounds:
    """See `Experiment.bound`."""
    config, network, schedule = assembly.config, assembly.network, assembly.schedule
    check_bound(config, assembly.plan)
    measured = measure(assembly) if measured is None else measured
    privacy, mechanism = config.privacy, assembly.calibration.mechanism
    n_parameters, rate = assembly.model.n_parameters, float(assembly.sampling_rates.max())
    constants = estimate_constants(measured, mechanism, schedule, privacy, n_parameters, rate)
    noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, n_parameters)
    terms = network_terms(network, [privacy.alpha] * network.tree.depth)
    summary = bound_summary(measured, constants, noise, mechanism, network, schedule, privacy.alpha)
    return ConvergenceBounds(
        bound_table(measured, terms, constants, noise, schedule),
        layer_table(network, terms),
        summary,
        tuple(broken_assumptions(summary)),
    )
