"""What can be found wrong with an experiment before anything is trained or written."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import numpy as np
import torch

from m2fdp import own_code
from m2fdp.algorithms import ALGORITHMS, Plan, build_plan, get_algorithm
from m2fdp.config import Config, ThreatConfig, TrainingConfig
from m2fdp.data.dataset import Dataset
from m2fdp.data.features.mapping import PIXELS
from m2fdp.data.overlap import refuse_records
from m2fdp.errors import InputError
from m2fdp.experiments.participation import check_participation
from m2fdp.experiments.proximal import check_proximal
from m2fdp.experiments.slots import check_slots
from m2fdp.experiments.smoothness import longest_squared, smoothness_of
from m2fdp.experiments.tiers import check_batches, check_tiers, model_of, surprises_in_tiers
from m2fdp.experiments.tree_tiers import check_not_split, check_splits
from m2fdp.models.checks import Shape, check_one_by_one
from m2fdp.models.registry import Model, check_model_name
from m2fdp.privacy.calibration import check_delta
from m2fdp.privacy.mechanisms import get_mechanism, lock_step_of
from m2fdp.privacy.sight import BESIDE, ELECTED, KINDS
from m2fdp.simulation.clipping import flat_clip
from m2fdp.simulation.local_rules import GradientStep, try_local_rule
from m2fdp.simulation.sampling import sampling_rates
from m2fdp.topology.network import heads_of, weighted
from m2fdp.topology.super_nodes import zone_read_in_clear


def check_config(config: Config) -> Plan:
    """Everything that can be found wrong without looking at data.

    Returns:
        The algorithm's plan, which whoever goes on with the configuration takes.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    get_mechanism(config.privacy.mechanism).check(config.privacy)
    plan = build_plan(config)
    check_participation(config, plan)
    check_proximal(config, plan)
    check_slots(config, plan)
    check_splits(config, plan)
    check_model_name(config.model.name)
    check_tiers(config, plan)
    for key, name in (
        ("model.loss", config.model.loss),
        ("partition.scheme", config.partition.scheme),
        ("dataset.name", config.dataset.name),
    ):
        if name is not None and own_code.is_own(name):
            own_code.load(key, name)
    _check_mechanism(config, plan)
    if config.dataset.scale != "pixels" and config.features.map != PIXELS:
        raise InputError(
            "dataset.scale",
            config.dataset.scale,
            f"is for features.map: {PIXELS}; other maps scale by themselves; use pixels",
        )
    if plan.private:
        _check_rules(config, plan)
        _check_steps(config, plan)
        _check_super_nodes(config, plan)
        _check_trusted(config, plan)
    if config.secure_aggregation.layers:
        _check_sums(config, plan)
    if config.control.enabled:
        _check_control(config, plan)
    if config.topology.weights == "samples":
        _check_sample_weights(config, plan)
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device", config.device, "no CUDA device is available; use cpu")
    return plan


def _check_mechanism(config: Config, plan: Plan) -> None:
    """The mechanism is one of the algorithm's, and defined for its network and schedule."""
    privacy, mechanism = config.privacy, get_mechanism(config.privacy.mechanism)
    able = get_algorithm(config.algorithm).mechanisms
    if able is not None and privacy.mechanism not in able:
        raise InputError(
            "privacy.mechanism",
            privacy.mechanism,
            f"is not that of algorithm: {config.algorithm}; use {', '.join(sorted(able))}",
        )
    if plan.private:
        mechanism.check(privacy, plan.network, plan.schedule.round_plans())


def _check_rules(config: Config, plan: Plan) -> None:
    """What the ledger takes for granted of a step holds for the algorithm's own rules too."""
    privacy = config.privacy
    steps_count = privacy.unit == "record"  # a device's update is clipped as a whole
    mechanism = get_mechanism(privacy.mechanism)
    noised = mechanism.noises_every_step or mechanism.clipping(privacy).of_models
    if steps_count and not noised and privacy.drift not in plan.rules.local.drifts:
        known = ", ".join(sorted(plan.rules.local.drifts)) or "none"
        raise InputError(
            "privacy.drift",
            privacy.drift,
            f"is not known to hold for the local rule of algorithm: {config.algorithm}; "
            f"{known} is; use that, or noise at every step (privacy.mechanism: gradient)",
        )
    if privacy.drift != "worst_case" and plan.rules.clip_factor is not flat_clip:
        raise InputError(
            "privacy.drift",
            privacy.drift,
            "needs clips that bring two gradients no further apart, and algorithm: "
            f"{config.algorithm} has its own clip_factor; use worst_case",
        )


def _check_steps(config: Config, plan: Plan) -> None:
    """Where heads noise every step, all noise from below them would have to be there by then."""
    if not get_mechanism(config.privacy.mechanism).noises_every_step:
        return
    tree, head_layers = plan.network.tree, heads_of(plan.network)[:, 0]
    for layer, noise in enumerate(plan.network.noise):
        below = tree.ancestors[layer][head_layers < layer]
        adding = below[noise[below] > 0]
        if adding.size:
            raise InputError(
                "privacy.mechanism",
                config.privacy.mechanism,
                f"noises every step where it leaves trusted ground, so that what "
                f"{tree.names[layer][adding[0]]} adds below that is never drawn (algorithm: "
                f"{config.algorithm}); use mechanism: upload",
            )
    beside = np.flatnonzero(head_layers > 0)
    if 0 < beside.size < tree.n_devices:
        raise InputError(
            "privacy.mechanism",
            config.privacy.mechanism,
            f"has devices that step with the cloud, which noises their steps, beside others, such "
            f"as {tree.names[-1][beside[0]]}, that do not (algorithm: {config.algorithm}); use "
            "mechanism: upload",
        )


def _check_sums(config: Config, plan: Plan) -> None:
    """What can't be with secure aggregation."""
    sums, mechanism = config.secure_aggregation, get_mechanism(config.privacy.mechanism)
    if sums.protocol == "masks" and not (
        plan.private and isinstance(plan.rules.local, GradientStep)
    ):
        missing = "whose local rule is its own" if plan.private else "which clips nothing"
        raise InputError(
            "secure_aggregation.protocol",
            "masks",
            "needs vectors of a bounded norm, which fit a grid: not those of algorithm: "
            f"{config.algorithm}, {missing}; use ideal",
        )
    if plan.private and sums.decode == "cloud" and mechanism.noises_every_step:
        plans = plan.schedule.round_plans()
        layers, _ = lock_step_of(mechanism, plan.network, plans).nodes.T
        between = ((layers > 0) & (layers < max(sums.layers))).any()
        if between and plan.schedule.local_steps > 1:
            raise InputError(
                "secure_aggregation.decode",
                "cloud",
                "leaves trusted servers, which step together with the devices below them, nothing "
                "that they can read; use parent, privacy.mechanism: upload, or one local step",
            )


def _check_super_nodes(config: Config, plan: Plan) -> None:
    """A zone that lets its elected super-nodes read what nobody has noised trusts its devices."""
    zone = zone_read_in_clear(plan.network)
    bound = plan.distrusts | set(config.threat.distrusted)
    beside = {kind for kind, row in KINDS.items() if row.drew in (BESIDE, ELECTED)}
    for kind in sorted(beside & bound if zone else set()):
        key, value = "threat.distrusted", kind
        if kind not in config.threat.distrusted:
            key, value = "algorithm", config.algorithm
        raise InputError(
            key,
            value,
            f"can't be protected from ({kind}) in zone {zone}, whose devices are its super-nodes "
            "by turns (topology.super_nodes.kind: elected) and read its messages un-noised; let "
            "devices add the noise, or use fixed",
        )


def _check_trusted(config: Config, plan: Plan) -> None:
    """Nobody is distrusted by name whom the network trusts with what he reads; the default names
    whoever of servers and cloud is not trusted, and so do both together of servers."""
    named, (cloud, *servers) = set(config.threat.distrusted), plan.network.trust
    if named == set(ThreatConfig().distrusted):
        return
    all_servers = bool(servers) and all(layer.all() for layer in servers)
    trusted = {"cloud": bool(cloud[0]), "servers": all_servers and "cloud" not in named}
    for kind in sorted(named):
        if trusted.get(kind):
            raise InputError(
                "threat.distrusted",
                kind,
                f"can't be bound where it is trusted with what it reads (algorithm: "
                f"{config.algorithm}); leave it out, or use an algorithm and topology.trust that "
                "do not trust it",
            )


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


def _check_control(config: Config, plan: Plan) -> None:
    """What a controlled run can't be."""
    if not get_algorithm(config.algorithm).controllable:
        able = ", ".join(name for name, own in ALGORITHMS.items() if own.controllable)
        raise InputError(
            "control.enabled", True, f"belongs to algorithm: {able}, not to {config.algorithm}"
        )
    if config.training.participants is not None:
        raise InputError(
            "training.participants",
            config.training.participants,
            "is what the controller chooses (control.enabled); use null",
        )
    if plan.network.tree.depth < 2:
        raise InputError(
            "control.enabled", True, "needs edge servers whose participation it can choose"
        )
    deeper = [layer for layer in plan.schedule.local_aggregation if layer > 1]
    if deeper:
        raise InputError(
            "training.local_aggregation",
            deeper[0],
            "is a layer that the controller does not aggregate at; valid: 1",
        )
    room = config.training.rounds * config.control.max_local_steps
    if config.control.gap == "mechanism" and (config.control.tau or 0) > room:
        raise InputError(
            "control.tau",
            config.control.tau,
            f"is more than training.rounds = {config.training.rounds} rounds of "
            f"control.max_local_steps = {config.control.max_local_steps} have room for",
        )
    if get_mechanism(config.privacy.mechanism).clipping(config.privacy).of_models:
        raise InputError(
            "privacy.mechanism",
            config.privacy.mechanism,
            "clips no step that the controller (control.enabled) could price; use gradient or "
            "upload",
        )
    unpriced = "is nothing that the controller (control.enabled) prices; use"
    if plan.network.sums.layers and config.control.gap == "papers":
        raise InputError(
            "secure_aggregation.layers",
            config.secure_aggregation.layers,
            "is nothing that control.gap: papers prices; use [], or gap: mechanism",
        )
    if plan.network.elected:
        raise InputError("topology.super_nodes.kind", "elected", f"{unpriced} fixed")
    if config.privacy.noise_multiplier is not None:
        raise InputError(
            "privacy.calibration",
            config.privacy.calibration,
            "has no epsilon that the controller (control.enabled) could price; use accountant",
        )
    if config.privacy.drift != "worst_case":
        raise InputError(
            "privacy.drift",
            config.privacy.drift,
            "needs step sizes that are known before training, and the controller (control.enabled) "
            "chooses them in it; use worst_case",
        )


def _check_sample_weights(config: Config, plan: Plan) -> None:
    """What can't be with weights by sample count."""
    shards = np.ones(plan.network.tree.n_devices)  # whatever their sizes
    network = weighted(plan.network, shards, config.topology.weights)
    if config.control.enabled:
        raise InputError(
            "topology.weights",
            config.topology.weights,
            "is nothing that the controller (control.enabled) prices; use uniform",
        )
    if plan.private:
        mechanism = get_mechanism(config.privacy.mechanism)
        mechanism.check(config.privacy, network, plan.schedule.round_plans())


def check_equal_rounds(config: Config, plan: Plan) -> None:
    """Refuse audit, bound and attack of a controlled run, and of one whose devices join by chance
    or split their model.

    Raises:
        InputError: it is one.
    """
    remedy = "audit, bound and attack are made for rounds that are all alike; use "
    if get_algorithm(config.algorithm).tiers is not None:
        raise InputError("algorithm", config.algorithm, f"{remedy}one of local steps")
    if config.control.enabled:
        raise InputError("control.enabled", True, f"{remedy}false")
    training = config.training
    if training.participation is not None:
        raise InputError("training.participation", training.participation, f"{remedy}null")
    if training.estimator != "mean":
        raise InputError("training.estimator", training.estimator, f"{remedy}mean")
    check_not_split(config, plan)


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
    if built.own and plan.private:
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
