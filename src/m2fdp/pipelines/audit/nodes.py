"""Nodes of the audit pipeline."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from m2fdp.algorithms import Plan
from m2fdp.config import AuditConfig, PrivacyConfig
from m2fdp.data.manifest import shards_of
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.reporting import privacy_figures, tables


def audit_mechanism(
    plan: Plan,
    mechanism: CalibratedMechanism,
    affordable_rounds: int,
    manifest: pd.DataFrame,
    privacy: PrivacyConfig,
    config: AuditConfig,
    seed: int,
) -> tuple[dict[str, Any], float, float]:
    """What every audited observer could learn at least and at most, and the largest of both."""
    # Every run imports this module, for its pipeline; only an audit needs SciPy's distributions.
    from m2fdp.adversaries import AuditedRun, audit, bounds_table

    rounds = min(affordable_rounds, config.rounds or affordable_rounds)
    table = bounds_table(
        audit(
            AuditedRun(plan.network, mechanism, plan.schedule, privacy, shards_of(manifest).sizes),
            rounds,
            config,
            seed,
        )
    )
    tables.print_audit(table, Console(highlight=False))
    return (
        {"observers": table.to_dict("records")},
        float(table["epsilon_lower"].max()),
        float(table["epsilon_upper"].max()),
    )


def draw_bounds(audited: dict[str, Any]) -> Figure:
    """Lower bound, upper bound and target of every audited observer."""
    return privacy_figures.audit_bounds(pd.DataFrame(audited["observers"]))
