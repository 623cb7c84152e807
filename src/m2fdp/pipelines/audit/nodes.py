"""Nodes of the audit pipeline."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from m2fdp.experiments import Experiment
from m2fdp.reporting import privacy_figures, tables


def audit_mechanism(experiment: Experiment) -> tuple[dict[str, Any], float, float]:
    """What every audited observer could learn at least and at most, and the largest of both."""
    table = experiment.audit()
    tables.print_audit(table, Console(highlight=False))
    return (
        {"observers": table.to_dict("records")},
        float(table["epsilon_lower"].max()),
        float(table["epsilon_upper"].max()),
    )


def draw_bounds(audited: dict[str, Any]) -> Figure:
    """Lower bound, upper bound and target of every audited observer."""
    return privacy_figures.audit_bounds(pd.DataFrame(audited["observers"]))
