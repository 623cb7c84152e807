"""What can be found wrong with an experiment once its records are dealt, before any training."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
import torch

from m2fdp.algorithms import Plan
from m2fdp.config import PIXELS, Config, TrainingConfig
from m2fdp.data.dataset import Dataset
from m2fdp.data.overlap import refuse_records
from m2fdp.errors import InputError
from m2fdp.experiments.smoothness import longest_squared, smoothness_of
from m2fdp.experiments.tiers import check_batches, model_of
from m2fdp.models.checks import Shape, check_one_by_one
from m2fdp.models.registry import Model
from m2fdp.privacy.calibration import check_delta
from m2fdp.simulation.local_rules import try_local_rule
from m2fdp.simulation.sampling import sampling_rates


def check_data(
    config: Config, plan: Plan, dataset: Dataset, shape: Shape, shard_sizes: np.ndarray
) -> None:
    """What can be found wrong once the records are dealt, before anything is written.

    Args:
        shape: (C, H, W) of what models take for an image.
        shard_sizes: int64 (N_L,), D_j.

    Raises:
        InputError: public images that are records, a model that does not fit the images, a delta
            too large for the shards, a non-expansive drift that model and step size do not
            have, a loss of which a controller can't know beta, or a local rule of one's own that
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
    if privacy.drift == "non_expansive":
        rates = sampling_rates(shard_sizes, training.batch_size)
        controlled = config.control.enabled  # which bounds what it chooses by beta itself
        step = training.learning_rate if controlled else plan.schedule.largest_step
        longest = longest_squared(config, shape)
        _certify_non_expansive(built, longest, float(rates.min()), step, plan.schedule.proximal)
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


def _certify_non_expansive(
    model: Model, longest: float, rate: float, step: float, proximal: float
) -> None:
    """Clipped steps of eta <= 2/beta never part two models, if the clipped loss is convex.

    A pull of eta mu to one point is then a contraction by 1 - eta mu if eta <= 2/(beta + 2 mu).

    It is for sums over classes of convex functions of the class's own score, each class
    clipped by itself. A minibatch of n records divided by B has beta at most n/B times
    curvature times the largest squared norm of features, `longest`, and n/B is at most 1/q.
    """
    if model.class_curvature is None:
        raise InputError(
            "privacy.drift",
            "non_expansive",
            f"is not certified for model.name: {model.name}, whose clipped loss is not smooth and "
            "convex; use model.name: logistic or drift: worst_case",
        )
    largest = 2 * rate / (model.class_curvature * longest + 2 * rate * proximal)
    if not step <= largest:
        most = "2/(beta/q + 2 mu)" if proximal else "2q/beta"
        raise InputError(
            "training.learning_rate",
            step,
            f"is too large for privacy.drift: non_expansive, which needs at most "
            f"{most} = {largest:.4g} here",
        )
