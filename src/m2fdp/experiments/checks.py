"""What can be found wrong with an experiment before anything is trained or written."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import numpy as np
import torch

from m2fdp import own_code
from m2fdp.algorithms import Plan, build_plan
from m2fdp.config import Config, TrainingConfig
from m2fdp.data.dataset import Dataset
from m2fdp.data.features.mapping import PIXELS
from m2fdp.data.overlap import refuse_records
from m2fdp.errors import InputError
from m2fdp.experiments.idle import refuse_idle
from m2fdp.experiments.pairs import (
    ATTACKS,
    DEPLOYED,
    EQUAL_ROUNDS,
    PAIRS,
    PLAIN_STEPS,
    refuse_clashes,
)
from m2fdp.experiments.request import DEPLOYMENT, OF_EXPERIMENTS, Request
from m2fdp.experiments.smoothness import longest_squared, smoothness_of
from m2fdp.experiments.tiers import check_batches, model_of, surprises_in_tiers
from m2fdp.models.checks import Shape, check_one_by_one
from m2fdp.models.registry import Model, check_model_name
from m2fdp.privacy.calibration import check_delta
from m2fdp.privacy.mechanisms import get_mechanism
from m2fdp.schedule.rounds import check_pull
from m2fdp.simulation.local_rules import try_local_rule
from m2fdp.simulation.sampling import sampling_rates
from m2fdp.topology.network import weighted


def check_config(config: Config, pipelines: frozenset[str] = OF_EXPERIMENTS) -> Plan:
    """Everything that can be found wrong without looking at data.

    Args:
        pipelines: see `Request`.

    Returns:
        The algorithm's plan, which whoever goes on with the configuration takes.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    mechanism = get_mechanism(config.privacy.mechanism)
    mechanism.check(config.privacy)
    plan = build_plan(config)
    request = Request(config, plan, pipelines)
    check_model_name(config.model.name)
    for key in ("model.loss", "partition.scheme", "dataset.name"):
        name = request.value(key)
        if name is not None and own_code.is_own(name):
            own_code.load(key, name)
    refuse_idle(request)
    refuse_clashes(PAIRS, request)
    if config.training.proximal and not config.control.enabled:  # which checks as it chooses
        check_pull(config.training.proximal, plan.schedule.step_size(1))
    shards = np.ones(plan.network.tree.n_devices)  # whatever their sizes
    network = weighted(plan.network, shards, config.topology.weights)
    if plan.private:
        mechanism.check(config.privacy, network, plan.schedule.round_plans())
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device", config.device, "no CUDA device is available; use cpu")
    return plan


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line for each thing that is allowed and is seldom what was meant."""
    schedule, lines = plan.schedule, surprises_in_tiers(config)
    if plan.private and config.secure_aggregation.layers and not plan.network.sums.shared:
        lines.append(
            "secure_aggregation.noise = separate: every sender's noise is enough by itself, and "
            "sums only lower epsilon; shared meets the same target with less noise"
        )
    if config.control.enabled:
        schedule = replace(schedule, local_steps=config.control.max_local_steps)
        if config.control.gap == "papers" and config.control.step_size_factor == 1.0:
            steps = config.control.tau or config.training.rounds * config.training.local_steps
            lines.append(
                "control.step_size_factor = 1 is J's own: steps of at most 1/(tau beta), too small "
                f"to get anywhere in tau steps; try {steps} (steps of 1/beta) and more"
            )
        if config.control.smoothness is None:
            lines.append(
                "control.smoothness = null: beta is what no record passes, and steps of at most "
                "1/beta are far smaller than clipped gradients allow; a number that held-out "
                "records have found trains faster"
            )
    if schedule.local_steps == 1:  # no round of one step has any, whatever an environment says
        return lines
    due = {schedule.aggregation_layer(step) for step in range(1, schedule.local_steps)}
    for layer in sorted(schedule.local_aggregation.keys() - due):
        lines.append(
            f"training.local_aggregation.{layer} = {schedule.local_aggregation[layer]}: never "
            f"comes, as a round has {schedule.local_steps} local steps and aggregations nearer "
            "the cloud come first; use a smaller number, or null"
        )
    return lines


def check_equal_rounds(config: Config, plan: Plan) -> None:
    """Refuse audit, bound and attack of a controlled run, and of one whose devices join by chance
    or split their model.

    Raises:
        InputError: it is one.
    """
    refuse_clashes(EQUAL_ROUNDS, Request(config, plan))


def check_audit(config: Config, plan: Plan) -> None:
    """Refuse audits of what has no noise, and of rounds that are not alike.

    Raises:
        InputError: naming the key.
    """
    check_equal_rounds(config, plan)
    if not plan.private:
        remedy = "adds no noise, so there is no bound to audit"
        raise InputError("algorithm", config.algorithm, remedy)


def check_bound(config: Config, plan: Plan) -> None:
    """Refuse bounds on convergence where rounds are not alike, or steps are not plain.

    Raises:
        InputError: naming the key.
    """
    refuse_clashes((*EQUAL_ROUNDS, *PLAIN_STEPS), Request(config, plan))


def check_attack(config: Config, plan: Plan) -> None:
    """Refuse attacks that are not defined for a run.

    Raises:
        InputError: naming the key.
    """
    refuse_clashes((*EQUAL_ROUNDS, *ATTACKS), Request(config, plan))


def check_deployment(config: Config) -> Plan:
    """Everything that can be found wrong with a run of real processes without looking at data.

    Raises:
        InputError: see `check_config`, or what no tree of processes can do.
    """
    refuse_clashes(DEPLOYED, Request(config, build_plan(config)))
    return check_config(config, frozenset({DEPLOYMENT}))


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
    kept = plan.rules.server.start(torch.zeros(built.n_parameters))
    try_local_rule(plan.rules.local, built.n_parameters, training.learning_rate, kept)
    if built.is_own and plan.private:
        check_one_by_one(built.name, built.module, shape)
    check_batches(config, shape, shard_sizes)
    # A device as a whole takes part for certain.
    by_record = privacy.unit == "record"
    rates = sampling_rates(shard_sizes, training.batch_size if by_record else None)
    chance, steps, of = training.participation, training.rounds * training.local_steps, "steps"
    if chance is not None:  # of a round, that its device joins and some step draws the record
        rates = chance * (1 - (1 - rates) ** training.local_steps)
        steps, of = training.rounds, "rounds"
    check_delta(privacy.delta, shard_sizes, rates, steps, of)
    if privacy.drift == "non_expansive":
        _certify_non_expansive(built, longest_squared(config, shape), shard_sizes, training)
    if config.control.enabled:
        smoothness_of(config, built, shape)


def _largest_minibatch(shard_sizes: np.ndarray, training: TrainingConfig) -> int:
    """The records that a local step uses at most; of drawn ones, more are seldom."""
    largest, batch = int(shard_sizes.max()), training.batch_size
    return largest if batch is None else min(largest, ceil(batch + 4 * sqrt(batch)))


def _certify_non_expansive(
    model: Model, longest: float, shard_sizes: np.ndarray, training: TrainingConfig
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
    rate = float(sampling_rates(shard_sizes, training.batch_size).min())
    largest = 2 * rate / (model.class_curvature * longest + 2 * rate * training.proximal)
    if training.learning_rate > largest:
        most = "2/(beta/q + 2 mu)" if training.proximal else "2q/beta"
        raise InputError(
            "training.learning_rate",
            training.learning_rate,
            f"is too large for privacy.drift: non_expansive, which needs at most "
            f"{most} = {largest:.4g} here",
        )
