"""Nodes of the training pipeline."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from m2fdp.algorithms import Plan
from m2fdp.config import essentials, parse_config
from m2fdp.control.course import RunPlan, run_course
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import held_by_cloud
from m2fdp.pipelines.outbox import UNSENT
from m2fdp.pipelines.simulating import configured_simulation, records
from m2fdp.pipelines.training.checkpointing import begin
from m2fdp.pipelines.training.progress import tracked_progress
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.simulation.training import divergence, train

logger = logging.getLogger(__name__)


def train_model(
    plan: Plan,
    run_plan: RunPlan,
    mechanisms: tuple[Mechanism, ...],
    affordable_rounds: int,
    dataset: Dataset,
    manifest: pd.DataFrame,
    parameters: dict[str, Any],
    checkpoints: Path,
) -> tuple[dict[str, Any], dict[str, Tensor], pd.DataFrame]:
    """The configuration that a model is of, its state dict, and the metrics of every evaluated
    round."""
    config = parse_config(parameters)
    training = config.training
    simulation = configured_simulation(plan, mechanisms[0], dataset, manifest, config)
    course = run_course(
        simulation, run_plan, mechanisms, config.resources, config.control.smoothness
    )
    start, checkpointing = begin(checkpoints, config)
    with tracked_progress(affordable_rounds, start, checkpoints.parent / UNSENT) as observer:
        state, metrics = train(
            simulation,
            course,
            *records(dataset, held_by_cloud(manifest, training.evaluate_on), config.device),
            training.evaluate_every,
            affordable_rounds,
            observer,
            start,
            checkpointing,
        )
    if (line := divergence(simulation, metrics, dataset.n_classes)) is not None:
        logger.warning(line)
    named = simulation.model.unflatten(state.weights.cpu())
    trained = {name: value.clone() for name, value in named.items()}
    return essentials(config), trained, metrics
