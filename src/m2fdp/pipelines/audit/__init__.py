"""Test the promise in the engine's own rounds: canaries against the ledger's bounds, or pairs of
runs that differ in one record against its shifts."""

from math import nan
from typing import Any

import pandas as pd
from kedro.pipeline import Pipeline
from matplotlib.figure import Figure

from m2fdp.adversaries.run import refuse_broken, tried_condition
from m2fdp.experiment import Experiment
from m2fdp.pipelines.datasets import node
from m2fdp.reporting.figures import audit_bounds, neighbours_figure
from m2fdp.reporting.room_figures import print_audit, print_neighbours


def audit_mechanism(experiment: Experiment) -> tuple[dict[str, Any], float, float]:
    """What every audited observer could learn at least and at most, and the largest of both; by
    neighbours no least is known."""
    table = experiment.audit()
    observers = {"observers": table.to_dict("records")}
    if experiment.config.audit.method == "canaries":
        print_audit(table)
        largest = table[["epsilon_lower", "epsilon_upper"]].max()
        return observers, float(largest["epsilon_lower"]), float(largest["epsilon_upper"])
    print_neighbours(table)
    condition = tried_condition(experiment, table)
    if condition is not None:
        print(condition)
    ledger, rounds = experiment.calibration.accounted
    return observers | {"condition": condition}, nan, ledger.verified(rounds)


def draw_bounds(audited: dict[str, Any]) -> Figure:
    """What every audited observer learns at least, at most and should; or was shown, and may be."""
    table = pd.DataFrame(audited["observers"])
    return audit_bounds(table) if "epsilon_lower" in table else neighbours_figure(table)


def judge(audited: dict[str, Any]) -> None:
    """End the run where a line did not hold, once all is written."""
    refuse_broken(pd.DataFrame(audited["observers"]))


def create_pipeline() -> Pipeline:
    """Experiment to empirical bounds on epsilon beside the ledger's."""
    audited = ["audit", "audit_epsilon_lower", "audit_epsilon_upper"]
    return Pipeline(
        [
            node(audit_mechanism, "experiment", audited),
            node(draw_bounds, "audit", "audit_bounds"),
            node(judge, "audit", None),
        ]
    )
