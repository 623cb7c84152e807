"""Nodes of the training pipeline."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from m2fdp.algorithms import Plan
from m2fdp.config import Config, essentials, parse_config
from m2fdp.control.policy import ControlledRounds
from m2fdp.costs.clock import totals
from m2fdp.costs.resources import LinkClock
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import held_by_cloud
from m2fdp.errors import InputError
from m2fdp.pipelines.outbox import UNSENT
from m2fdp.pipelines.simulating import configured_controller, configured_process, records
from m2fdp.pipelines.training.checkpointing import begin
from m2fdp.pipelines.training.progress import tracked_progress
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.schedule.rounds import RunPlan
from m2fdp.simulation.evaluation import evaluate
from m2fdp.simulation.training import (
    DivergenceError,
    FixedRounds,
    Measures,
    RoundPolicy,
    Run,
    divergence,
    train,
)

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
    process = configured_process(run_plan.networks, mechanisms, dataset, manifest, config)
    simulation = process.simulation
    controller = configured_controller(plan, dataset, manifest, config)
    lock_steps = [mechanism.lock_step for mechanism in mechanisms]
    model = simulation.model
    clock = LinkClock(run_plan.networks, lock_steps, model.n_parameters, config.resources)
    costs = totals(clock, run_plan.rounds)
    evaluated = records(
        dataset, held_by_cloud(manifest, config.training.evaluate_on), config.device
    )
    measures = Measures(
        config.training.evaluate_every,
        lambda weights: evaluate(model, weights, *evaluated, process.executor.workers),
        lambda round_: (costs[round_ - 1].energy_j, costs[round_ - 1].delay_s),
        mechanisms[0].epsilon if mechanisms[0].private else lambda round_: math.nan,
    )
    policy: RoundPolicy = FixedRounds(run_plan.rounds)
    if controller is not None:
        policy = ControlledRounds(
            controller, run_plan.rounds, simulation, config.control.smoothness
        )
    start, checkpointing = begin(checkpoints, config)
    with tracked_progress(affordable_rounds, start, checkpoints.parent / UNSENT) as listener:
        try:
            state, metrics = train(
                Run(process, policy, affordable_rounds, measures), listener, start, checkpointing
            )
        except DivergenceError as error:
            raise _diverged(error, config) from None
    last_loss = float(metrics["loss"].iloc[-1])
    if (line := divergence(model, last_loss, dataset.n_classes)) is not None:
        logger.warning("%s; choose a smaller %s", line, _step_size_key(config))
    named = model.unflatten(state.weights.cpu())
    trained = {name: value.clone() for name, value in named.items()}
    return essentials(config), trained, metrics


def _step_size_key(config: Config) -> str:
    """What a user changes to change step sizes."""
    return "control.step_size_factor" if config.control.enabled else "training.learning_rate"


def _diverged(error: DivergenceError, config: Config) -> InputError:
    value: object = config.training.learning_rate
    if config.control.enabled:
        value = f"eta {error.step_size:.3g}"
    return InputError(_step_size_key(config), value, f"{error}; choose a smaller one")
