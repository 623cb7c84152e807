"""What can be found wrong with an experiment once its records are dealt, before any training."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
import torch

from m2fdp.convergence.loss_smoothness import smoothness_of
from m2fdp.core.algorithms import Plan
from m2fdp.core.config import PIXELS, Config, TrainingConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.local_rules import try_local_rule
from m2fdp.core.engine.sampling import sampling_rates
from m2fdp.core.models.checks import Shape, check_one_by_one
from m2fdp.core.privacy.calibration import check_delta
from m2fdp.features.overlap import refuse_records
from m2fdp.tiers.assembly import check_batches, model_of


def check_data(
    config: Config, plan: Plan, dataset: Dataset, shape: Shape, shard_sizes: np.ndarray
) -> None:
    """What can be found wrong once the records are dealt, before anything is written.

    Args:
        shape: (C, H, W) of what models take for an image.
        shard_sizes: int64 (N_L,), D_j.

    Raises:
        InputError: public images are records, the model does not fit the images, or delta is too
            large for the shards. A controller can't know beta of the loss, or an own local rule
            does not descend once.
    """
    training, privacy = config.training, config.privacy
    if config.features.map != PIXELS:
        refuse_records(config.features.public, dataset)
    largest = _largest_minibatch(shard_sizes, training)
    built = model_of(config, shape, dataset.n_classes, 0, largest)
    model = torch.zeros(1, built.n_parameters)
    kept = plan.rules.server.start(model[0])
    try_local_rule(plan.rules.local, model, training.learning_rate, kept)
    if built.is_own and (who := _vectorises(config, plan)):
        check_one_by_one(built.name, built.module, shape, who)
    check_batches(config, shape, shard_sizes)
    # A device as a whole takes part for certain.
    by_record = privacy.unit == "record"
    rates = sampling_rates(shard_sizes, training.batch_size if by_record else None)
    schedule, chance = plan.schedule, plan.network.chance
    steps, of = schedule.rounds * schedule.local_steps, "steps"
    if chance is not None:  # of a round, that its device joins and some step draws the record
        rates = chance * (1 - (1 - rates) ** schedule.local_steps)
        steps, of = schedule.rounds, "rounds"
    check_delta(privacy.delta, shard_sizes, rates, steps, of)
    if config.control.enabled:
        smoothness_of(config, built, shape)


def _vectorises(config: Config, plan: Plan) -> str | None:
    """Who passes records through the model by torch.func.vmap, in words."""
    if plan.private:
        return "privacy, whose records each pass it alone,"
    if config.control.enabled:
        return "the controller (control.enabled)"
    backend, on_gpu = config.training.backend, config.device != "cpu"
    return "training.backend: stacked" if backend in ("stacked", *["auto"] * on_gpu) else None


def _largest_minibatch(shard_sizes: np.ndarray, training: TrainingConfig) -> int:
    """The records that a local step uses at most; of drawn ones, more are seldom."""
    largest, batch = int(shard_sizes.max()), training.batch_size
    return largest if batch is None else min(largest, ceil(batch + 4 * sqrt(batch)))
