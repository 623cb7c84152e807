"""A run in tiers: its model, its course and its process; and what it can't be."""

from __future__ import annotations

from typing import cast

import numpy as np

from m2fdp.algorithms import Plan, get_algorithm
from m2fdp.config import TRAINED, Config, ModelConfig, TieringConfig, TrainingConfig
from m2fdp.errors import InputError
from m2fdp.models.checks import FEW, Shape
from m2fdp.models.registry import Model, build_model, resnet_plan
from m2fdp.models.split import SPLIT_MODELS, build_split_model
from m2fdp.privacy.mechanisms.splits import exposed_splits
from m2fdp.simulation.sampling import draw_participants
from m2fdp.simulation.simulation import Simulation
from m2fdp.streams import seeded
from m2fdp.tiering.costs import ModuleCosts, module_costs
from m2fdp.tiering.course import TierCourse, plan_course
from m2fdp.tiering.printed import TABLE_TIERS
from m2fdp.tiering.process import TierProcess
from m2fdp.tiering.transfer import TransferProcess
from m2fdp.tiering.ways import Way
from m2fdp.topology.network import Network

_LARGE_FOR_ADAM = 0.05
# Keys that only runs in tiers read.
_OF_TIERS = ("local_epochs", "optimizer", "weight_decay", "plateau")


def check_tiers(config: Config, plan: Plan) -> None:
    """Refuse what a run in tiers can't be, and what only one can.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    way = get_algorithm(config.algorithm).tiers
    if way is None:
        _check_no_tiers(config)
        return
    training, model, tiering = config.training, config.model, config.tiering
    if plan.private:
        _check_noised_epochs(config, plan)
    _check_transfer(config, way)
    if model.name not in SPLIT_MODELS:
        valid = ", ".join(SPLIT_MODELS)
        raise InputError("model.name", model.name, f"can't be trained in tiers; {valid} can")
    cuts = SPLIT_MODELS[model.name]
    if way.tiered and tiering.tiers > cuts:
        raise InputError("tiering.tiers", tiering.tiers, f"is more than {model.name}'s {cuts}")
    if model.name != "resnet" and config.clock.model != TRAINED:
        raise InputError(
            "clock.model",
            config.clock.model,
            f"has other modules than model.name: {model.name}; use {TRAINED}",
        )
    if tiering.profile == "paper" and model.name != "resnet":
        raise InputError("tiering.profile", "paper", "is of D's ResNets; use clock")
    if training.batch_size is not None and training.batch_size % 1:
        raise InputError(
            "training.batch_size", training.batch_size, "must be whole, as batches are exact"
        )
    if training.plateau.factor < 1 and training.evaluate_every > 1:
        raise InputError(
            "training.evaluate_every",
            training.evaluate_every,
            "leaves a plateau (training.plateau.factor) rounds that it can't see; use 1",
        )
    if training.backend not in ("auto", "reference"):
        raise InputError("training.backend", training.backend, "is not for tiers; use auto")
    if training.step_size != "constant":
        raise InputError("training.step_size", training.step_size, "is not D's; use constant")
    if not way.tiered:
        for key, given in config.leakage.model_dump().items():
            if given:
                words = f"is of clients with losses of their own (dtfl), not of {config.algorithm}"
                raise InputError(f"leakage.{key}", given, words)
    unweighed = "is nothing that algorithms in tiers know; use"
    for key, value, usual in (
        ("training.participation", training.participation, None),
        ("training.proximal", training.proximal, 0.0),
        ("topology.weights", config.topology.weights, "uniform"),
        ("secure_aggregation.layers", config.secure_aggregation.layers, []),
        ("privacy.secure_rng", config.privacy.secure_rng, False),
    ):
        if value != usual:
            remedy = {"topology.weights": "tiering.aggregate"}.get(key, str(usual).lower())
            raise InputError(key, value, f"{unweighed} {remedy.replace('none', 'null')}")


def surprises_in_tiers(config: Config) -> list[str]:
    """A line for each thing that is allowed in tiers and is seldom what was meant."""
    way, training, tiering = get_algorithm(config.algorithm).tiers, config.training, config.tiering
    lines: list[str] = []
    if way is None:
        return lines
    if training.optimizer == "adam" and training.learning_rate > _LARGE_FOR_ADAM:
        lines.append(
            f"training.learning_rate = {training.learning_rate:g} is far above D's 0.001: steps of "
            "Adam are of that length whatever the gradient (training.optimizer)"
        )
    believed = tiering.profile == "paper" and tiering.schedule == "dynamic"
    if way.tiered and believed and tiering.tiers > TABLE_TIERS:
        lines.append(
            f"tiering.profile = paper: D's Table 2 has {TABLE_TIERS} tiers, and the times of the "
            f"lowest of tiering.tiers = {tiering.tiers} are a guess of this code's; use "
            f"{TABLE_TIERS}, or profile: clock"
        )
    return lines


def _check_noised_epochs(config: Config, plan: Plan) -> None:
    """Of epochs the engine noises what devices send that split their model, and nothing else."""
    if not exposed_splits(plan.network).all():
        raise InputError(
            "algorithm",
            config.algorithm,
            "trains in tiers, where only devices that split their model below a server that nobody "
            "trusts noise what they send, and has others (Network.splits); split it on all of them",
        )
    counted, epochs = plan.schedule.local_steps, config.training.local_epochs
    if counted != epochs:
        raise InputError(
            "training.local_epochs",
            epochs,
            f"releases every record as often a round, and algorithm: {config.algorithm} has the "
            f"ledger count {counted} (Schedule.local_steps); make them equal",
        )


def _check_transfer(config: Config, way: Way | None) -> None:
    """Refuse what FedGKT can't be, and what only it can."""
    tiering, backend = config.tiering, config.training.backend
    if way is None or way.averaged:
        if tiering.server_epochs != TieringConfig().server_epochs:
            words = f"belongs to algorithm: fedgkt, not to {config.algorithm}"
            raise InputError("tiering.server_epochs", tiering.server_epochs, words)
        return
    if tiering.aggregate != TieringConfig().aggregate:
        words = f"weighs clients in a mean, and algorithm: {config.algorithm} averages nothing"
        raise InputError("tiering.aggregate", tiering.aggregate, f"{words}; use samples")
    if backend == "reference":
        words = f"is how the two parties of algorithm: {config.algorithm} step anyway; use auto"
        raise InputError("training.backend", backend, words)


def _check_no_tiers(config: Config) -> None:
    usual = TrainingConfig()
    for key in _OF_TIERS:
        value = getattr(config.training, key)
        if value != getattr(usual, key):
            told = value.factor if key == "plateau" else value
            name = "plateau.factor" if key == "plateau" else key
            raise InputError(f"training.{name}", told, _refusal(config))
    if config.tiering.aggregate != TieringConfig().aggregate:
        raise InputError("tiering.aggregate", config.tiering.aggregate, _refusal(config))
    _check_transfer(config, None)
    for key, given in config.leakage.model_dump().items():
        if given:
            raise InputError(f"leakage.{key}", given, _refusal(config))


def _refusal(config: Config) -> str:
    return f"is for algorithms that train in tiers, and algorithm: {config.algorithm} does not"


def model_of(config: Config, shape: Shape, n_classes: int, seed: int, at_once: int = FEW) -> Model:
    """The configured model with its first weights: split, with the heads of its tiers, where the
    algorithm trains in tiers.

    Args:
        at_once: see `build_model`.

    Raises:
        InputError: see `build_model` and `build_split_model`.
    """
    way = get_algorithm(config.algorithm).tiers
    if way is None:
        return build_model(config.model, shape, n_classes, seed, at_once)
    return way.model(config, shape, n_classes, seed)


def check_batches(config: Config, shape: Shape, sizes: np.ndarray) -> None:
    """Refuse batches of one record where batch norm needs two numbers.

    Args:
        sizes: int64 (K,), the devices' records.

    Raises:
        InputError: there are some.
    """
    model = config.model
    if get_algorithm(config.algorithm).tiers is None or model.name != "resnet":
        return
    if model.norm != "batch" or resnet_plan(model).last_pixels(shape) > 1:
        return
    batch = config.training.batch_size or int(sizes.max())
    alone = np.flatnonzero((sizes % batch == 1) | (sizes == 1))
    if alone.size or batch == 1:
        raise InputError(
            "training.batch_size",
            config.training.batch_size,
            "leaves batches of one record, whose last maps are one number each, and batch norm "
            "needs two; use another, or model.norm: group",
        )


def trained_costs(config: ModelConfig, shape: Shape, n_classes: int) -> ModuleCosts:
    """What the modules of the trained model cost."""
    cuts = range(1, SPLIT_MODELS[config.name] + 1)
    small = build_split_model(config, shape, n_classes, None, (1,), small=True)
    return module_costs(build_split_model(config, shape, n_classes, None, cuts), small)


def course_of(
    config: Config, network: Network, sizes: np.ndarray, shape: Shape, n_classes: int
) -> TierCourse | None:
    """The course of a run in tiers; None where the algorithm trains otherwise.

    Args:
        sizes: int64 (K,), the devices' records.
        shape: (C, H, W) of the images.
    """
    way = get_algorithm(config.algorithm).tiers
    if way is None:
        return None
    streams = seeded(config.seed, b"").sampling
    rounds = range(1, config.training.rounds + 1)
    present = np.stack([draw_participants(network, streams, round_) for round_ in rounds])
    costs = trained_costs(config.model, shape, n_classes)
    return plan_course(config, way, costs, sizes, present)


def process_of(
    config: Config, simulation: Simulation, course: TierCourse, workers: int
) -> TierProcess | TransferProcess:
    """How the rounds of a run in tiers are computed."""
    way = cast(Way, get_algorithm(config.algorithm).tiers)  # it has a course
    return way.process(config, simulation, course.cuts, workers)


def seen_in_tiers(config: Config) -> dict[str, str]:
    """What observers see beside un-noised models, by their kind."""
    way = get_algorithm(config.algorithm).tiers
    how = ", their places shuffled," if config.leakage.patch_shuffling else ""
    return {kind: sees.format(how=how) for kind, sees in way.sees.items()} if way else {}
