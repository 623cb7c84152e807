"""Test the promise: canaries in the engine's own rounds against the ledger's bounds."""

from __future__ import annotations

from typing import Any

import pandas as pd
from kedro.pipeline import Pipeline
from matplotlib.figure import Figure

from m2fdp.experiments.experiment import Experiment
from m2fdp.pipelines.naming import node
from m2fdp.reporting.privacy_figures import audit_bounds
from m2fdp.reporting.tables import print_audit


def audit_mechanism(experiment: Experiment) -> tuple[dict[str, Any], float, float]:
    """What every audited observer could learn at least and at most, and the largest of both."""
    table = experiment.audit()
    print_audit(table)
    return (
        {"observers": table.to_dict("records")},
        float(table["epsilon_lower"].max()),
        float(table["epsilon_upper"].max()),
    )


def draw_bounds(audited: dict[str, Any]) -> Figure:
    """Lower bound, upper bound and target of every audited observer."""
    return audit_bounds(pd.DataFrame(audited["observers"]))


def create_pipeline() -> Pipeline:
    """Experiment to empirical bounds on epsilon beside the ledger's."""
    audited = ["audit", "audit_epsilon_lower", "audit_epsilon_upper"]
    return Pipeline(
        [
            node(audit_mechanism, "experiment", audited),
            node(draw_bounds, "audit", "audit_bounds"),
        ]
    )
