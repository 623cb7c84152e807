"""A run's promise, tested by canaries in the engine's own rounds."""

from __future__ import annotations

import pandas as pd

from m2fdp.experiments.assembly import Assembly
from m2fdp.experiments.checks import check_audit
from m2fdp.simulation.arithmetic import set_exact_arithmetic


def audit_run(assembly: Assembly) -> pd.DataFrame:
    """See `Experiment.audit`."""
    # SciPy's distributions take long.
    from m2fdp.adversaries.audit import audit, bounds_table
    from m2fdp.adversaries.canaries import AuditedRun

    config, plan = assembly.config, assembly.plan
    check_audit(config, plan)
    calibrated, sizes = assembly.calibration, assembly.samples.sizes
    set_exact_arithmetic()
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    promise = config.privacy, sizes, plan.rules
    run = AuditedRun(assembly.network, mechanism, assembly.schedule, *promise)
    rounds = min(rounds, config.audit.rounds or rounds)
    return bounds_table(audit(run, rounds, config.audit, config.seed))
