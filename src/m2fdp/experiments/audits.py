"""A run's promise, tested by canaries in the engine's own rounds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.errors import InputError
from m2fdp.experiments.results import Calibration
from m2fdp.simulation.arithmetic import set_exact_arithmetic


def audit_run(
    config: Config, plan: Plan, calibrated: Calibration, shard_sizes: np.ndarray
) -> pd.DataFrame:
    """Lower bounds on epsilon beside the ledger's upper bounds.

    Args:
        plan: with the network whose weights the shards have given.
        shard_sizes: int64 (N_L,), D_j.

    Raises:
        InputError: nothing is private.
    """
    from m2fdp import adversaries  # SciPy's distributions take long

    if not plan.private:
        remedy = "adds no noise, so there is no bound to audit"
        raise InputError("algorithm", config.algorithm, remedy)
    set_exact_arithmetic()
    mechanism, rounds = calibrated.mechanism, calibrated.affordable_rounds
    run = adversaries.AuditedRun(
        plan.network, mechanism, plan.schedule, config.privacy, shard_sizes, plan.rules
    )
    rounds = min(rounds, config.audit.rounds or rounds)
    return adversaries.bounds_table(adversaries.audit(run, rounds, config.audit, config.seed))
