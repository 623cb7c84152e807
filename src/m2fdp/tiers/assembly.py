"""A run in tiers: its model, its course and its process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.config import Config, ModelConfig
from m2fdp.core.engine.sampling import draw_participants
from m2fdp.core.errors import InputError
from m2fdp.core.models.checks import FEW, Shape
from m2fdp.core.models.names import SPLIT_MODELS
from m2fdp.core.models.registry import Model, build_model, resnet_plan
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.streams import seeded
from m2fdp.core.topology.network import Network
from m2fdp.tiers.building import build_model_of
from m2fdp.tiers.costs import ModuleCosts
from m2fdp.tiers.course import TierCourse, plan_course
from m2fdp.tiers.module_costs import module_costs
from m2fdp.tiers.split_models import build_split_model


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
    return build_model_of(way, config, shape, n_classes, seed)


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
    with_a_lone_record = np.flatnonzero((sizes % batch == 1) | (sizes == 1))
    if with_a_lone_record.size or batch == 1:
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


def seen_in_clear(config: Config, run_plan: RunPlan, ledger: Ledger) -> Ledger:
    """The ledger with what observers of tiers see beside un-noised models."""
    way = get_algorithm(config.algorithm).tiers
    if way is None:
        return ledger
    how = ", their places shuffled," if config.leakage.patch_shuffling else ""
    lines = (
        replace(line, sees=way.sees[line.kind].format(how=how)) if line.kind in way.sees else line
        for line in ledger.lines
    )
    return replace(ledger, lines=tuple(lines))
