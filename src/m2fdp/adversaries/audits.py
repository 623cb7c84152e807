"""A run's promise, tested in the engine's own rounds: by canaries, or by neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from m2fdp.adversaries.facts import check_audit
from m2fdp.core.engine.arithmetic import set_exact_arithmetic
from m2fdp.core.engine.lengths import TooLongError
from m2fdp.core.engine.training import DivergenceError
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.promise import conditions
from m2fdp.core.streams import seeded

if TYPE_CHECKING:
    from m2fdp.adversaries.tried_runs import TriedRun


def audit_run(assembly: Assembly) -> pd.DataFrame:
    """See `Experiment.audit`."""
    # SciPy's distributions take long.
    from m2fdp.adversaries.audit import audit, bounds_table
    from m2fdp.adversaries.canaries import AuditedRun

    config, plan = assembly.config, assembly.plan
    check_audit(config, plan)
    if config.audit.method == "neighbours":
        return _by_neighbours(assembly)
    calibrated, sizes = assembly.calibration, assembly.samples.sizes
    set_exact_arithmetic()
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    promise = config.privacy, sizes, plan.rules
    run = AuditedRun(assembly.network, mechanism, assembly.schedule, *promise)
    rounds = min(rounds, config.audit.rounds or rounds)
    return bounds_table(audit(run, rounds, config.audit, config.seed))


def tried_run(assembly: Assembly) -> TriedRun:
    """The run as it is tried on neighbours: with draws that repeat, and sums as they are, whatever
    protocol hides their terms."""
    from m2fdp.adversaries.tried_runs import TriedRun

    config, calibrated = assembly.config, assembly.calibration
    draws = seeded(config.seed, f"neighbours of {assembly.trained_on}".encode())
    simulation = assembly.simulation(randomness=draws)
    simulation = replace(simulation, sums=replace(simulation.sums, masks=False))
    rounds = calibrated.affordable_rounds
    return TriedRun(
        simulation,
        calibrated.mechanism.ledger,
        config.privacy,
        assembly.run_plan.rounds[: min(rounds, config.audit.rounds or rounds)],
        rounds,
        assembly.process,
        assembly.ledger_behind,
    )


def _by_neighbours(assembly: Assembly) -> pd.DataFrame:
    from m2fdp.adversaries.neighbours import tried_table, try_neighbours

    config = assembly.config
    set_exact_arithmetic()
    try:
        tried = try_neighbours(tried_run(assembly), config.audit.neighbours, config.seed)
    except DivergenceError as error:
        raise assembly.too_large(error) from None
    except TooLongError as error:
        raise assembly.too_long(error) from None
    return tried_table(tried)


def tried_condition(assembly: Assembly, tried: pd.DataFrame) -> str | None:
    """What neighbours say of a conditional run's condition; None where nothing is conditional."""
    if not conditions(assembly):
        return None
    broken = tried.loc[~tried["held"], "observer"]
    verdict = "did not hold for " + ", ".join(broken) if len(broken) else "held"
    return f"condition tried on {tried['neighbours'].max():,} neighbours: {verdict}"


def refuse_broken(tried: pd.DataFrame) -> None:
    """End where a line of the ledger did not hold.

    Args:
        tried: a table of `Experiment.audit`; of canaries nothing is judged.

    Raises:
        InputError: one did not.
    """
    for row in tried.to_dict("records"):
        if not row.get("held", True):
            raise InputError(
                "audit.method",
                "neighbours",
                f"finds a line of the ledger that does not hold: {row['observer']}, devices "
                f"{row['position']}: {row['finding']}; a shift of {row['found']:.3g} deviations of "
                f"the noise, where {row['allowed']:.3g} is allowed: trust no epsilon of this run",
            )
