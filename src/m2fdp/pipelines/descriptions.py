"""What MLflow's page of a run says about it in words: its card, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from m2fdp.experiment import Experiment
from m2fdp.reporting.cards import FIGURES, Card, privacy_card, subject_of
from m2fdp.reporting.naming import command

DESCRIPTION = "mlflow.note.content"  # the tag that MLflow's pages show as Markdown
TRAINING_PAGES = "workflowType=machine_learning"  # MLflow's pages begin with those for GenAI
LONGEST = 7_900  # characters; MLflow cuts a tag off at 8,000
SHOWN = "accuracy_curve.png"  # in the page itself; others are linked


def picture(run_id: str, path: str, shows: str) -> str:
    """An artifact of a run as a picture in its description."""
    return f"![{shows}](get-artifact?path={path}&run_uuid={run_id})"


def artifact_link(experiment_id: str, run_id: str, path: str, shows: str) -> str:
    """A link to an artifact on the run's page."""
    page = f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{path}"
    return f"[{shows}]({page}?{TRAINING_PAGES})"


def described(card: Card, experiment_id: str, run_id: str, files: Sequence[str]) -> str:
    """A run's card as its description.

    Args:
        files: names of the artifacts that the run has.
    """
    after = [picture(run_id, SHOWN, FIGURES[SHOWN])] if SHOWN in files else []
    links = [
        artifact_link(experiment_id, run_id, name, shows)
        for name, shows in FIGURES.items()
        if name in files
    ]
    if links:
        after.append(f"Figures: {', '.join(links)}.")
    return card.shortened(LONGEST, after)


def card_of_parts(
    experiment: Experiment,
    promised: Mapping[str, Any],
    round_metrics: pd.DataFrame | None,
    ledger: pd.DataFrame | None,
    pipelines: Sequence[str],
) -> Card:
    """The card of a run that has made none itself, as it was not asked to evaluate.

    Args:
        promised: the content of privacy_summary.json.
        round_metrics: None where nothing was trained.
        pipelines: that ran.
    """
    reached = None
    if round_metrics is not None:
        last = round_metrics.iloc[-1]
        numbers = ("accuracy", "loss", "energy_j", "delay_s")
        reached = {"rounds": int(last["round"])} | {name: float(last[name]) for name in numbers}
    repeat = command(experiment.config, pipelines)
    return privacy_card(subject_of(experiment), promised, reached, ledger, repeat)
