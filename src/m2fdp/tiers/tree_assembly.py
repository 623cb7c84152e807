"""A run over a tree whose devices split their model step by step: who has how much of it, when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from m2fdp.core.config import Config
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.models.checks import Shape
from m2fdp.core.privacy.mechanisms import get_mechanism, lock_step_of
from m2fdp.core.schedule.rounds import RunPlan
from m2fdp.core.streams import Randomness
from m2fdp.tiers import split_noise as splits
from m2fdp.tiers.costs import TierCosts, costs_of_cuts
from m2fdp.tiers.course import clock_costs
from m2fdp.tiers.module_costs import module_costs
from m2fdp.tiers.split_models import SplitModel, build_split_model
from m2fdp.tiers.split_steps import Splits
from m2fdp.tiers.tree_plan import TreeTiers, billed_cuts, plan_tree_tiers


def plan_splits(
    config: Config,
    run_plan: RunPlan,
    shape: tuple[Shape, int],
    sizes: np.ndarray,
    rates: np.ndarray,
) -> TreeTiers:
    """The tiers of all rounds.

    Args:
        shape: (C, H, W) of the images, and the number of classes.
        sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), q_j.

    Raises:
        InputError: a model that can't be split.
    """
    (network, *_) = run_plan.networks
    mechanism = get_mechanism(config.privacy.mechanism)
    lock_step = lock_step_of(mechanism, network, run_plan.rounds)
    return plan_tree_tiers(
        config.tiering,
        config.clock,
        _billed(config, shape),
        network,
        lock_step,
        sizes * rates,
        run_plan.rounds,
        config.seed,
    )


def split_in_use(config: Config, shape: tuple[Shape, int], tiers: TreeTiers) -> SplitModel:
    """The model with its first weights, and the heads of the tiers that are ever in use.

    Raises:
        InputError: see `build_split_model`.
    """
    used = [tier for tier in tiers.cuts if tier <= _cuts(config, shape)]
    return build_split_model(config.model, *shape, config.seed, used)


def splits_of(config: Config, tiers: TreeTiers | None) -> Splits | None:
    """What a simulation asks of who splits."""
    if tiers is None:
        return None
    return Splits(tiers.tiers, config.privacy.client_share, config.privacy.activation_clip)


def with_sent_labels(
    config: Config, run_plan: RunPlan, shards: Shards, n_classes: int, randomness: Randomness
) -> Shards:
    """The records with the labels that they are trained by: of devices whose activations go to a
    server that nobody trusts, if asked, drawn once a record by randomised response."""
    exposed = splits.exposed_splits(run_plan.networks[0])
    if config.privacy.labels == "public" or not exposed.any():
        return shards
    drawn = splits.randomised_response(
        shards.labels.cpu().numpy(),
        n_classes,
        config.privacy.label_epsilon,
        randomness.noise.generator("label-noise"),
    )
    theirs = torch.as_tensor(np.repeat(exposed, shards.sizes), device=shards.labels.device)
    labels = torch.as_tensor(drawn, device=shards.labels.device)
    return replace(shards, labels=torch.where(theirs, labels, shards.labels))


def _cuts(config: Config, shape: tuple[Shape, int]) -> int:
    """n, the places where the model that is trained can be cut."""
    return build_split_model(config.model, *shape, None, []).n_tiers


def _billed(config: Config, shape: tuple[Shape, int]) -> TierCosts:
    every = range(1, _cuts(config, shape) + 1)
    trained = module_costs(build_split_model(config.model, *shape, None, every))
    costs = clock_costs(config.clock, trained)
    cuts = billed_cuts(costs, len(every))
    return costs_of_cuts(costs, cuts, config.clock.label_bytes, whole_model=True)
