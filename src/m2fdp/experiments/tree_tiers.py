"""A run over a tree whose devices split their model step by step: who has how much of it, when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from m2fdp.algorithms import Plan, get_algorithm
from m2fdp.config import Config
from m2fdp.errors import BLOCK, InputError
from m2fdp.models.checks import Shape
from m2fdp.models.split import SPLIT_MODELS, SplitModel, build_split_model
from m2fdp.privacy.mechanisms import get_mechanism, lock_step_of, splits
from m2fdp.schedule.rounds import RunPlan
from m2fdp.simulation.minibatches import Shards
from m2fdp.simulation.splits import Splits
from m2fdp.streams import Randomness
from m2fdp.tiering.costs import module_costs
from m2fdp.tiering.course import clock_costs
from m2fdp.tiering.tree_plan import Billed, TreeTiers, billed_at, plan_tree_tiers
from m2fdp.topology.network import Network

# Keys that only runs read whose devices split their model and have a promise.
_OF_SPLITS = (
    "tiering.offload_to",
    "privacy.client_share",
    "privacy.activation_clip",
    "privacy.activation_share",
    "privacy.labels",
    "privacy.label_epsilon",
)


def splits_in_steps(config: Config, network: Network) -> bool:
    """Whether devices may split their model at every step, as they don't in epochs."""
    return network.splits is not None and get_algorithm(config.algorithm).tiers is None


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


def check_splits(config: Config, plan: Plan) -> None:
    """Refuse what is not defined, or not proven, where devices split their model step by step.

    Raises:
        InputError: naming the key.
    """
    if plan.network.splits is None:
        _check_no_splits(config)
        return
    algorithm, privacy, training = config.algorithm, config.privacy, config.training
    splits.refuse(plan.network, privacy)
    mechanism = get_mechanism(privacy.mechanism)
    many = f"is nothing that algorithm: {algorithm} splits its model with; use "
    cases: list[tuple[bool, str, object, str]] = [
        (
            not mechanism.noises_every_step,
            "privacy.mechanism",
            privacy.mechanism,
            f"{many}gradient, whose every step is noised",
        ),
        (privacy.unit == "device", "privacy.unit", "device", f"{many}record"),
        (
            config.model.name not in SPLIT_MODELS,
            "model.name",
            config.model.name,
            f"can't be split; valid for algorithm: {algorithm} are {', '.join(SPLIT_MODELS)}",
        ),
        (
            config.model.name == "resnet" and config.model.norm == "batch",
            "model.norm",
            "batch",
            "mixes the records of a batch, so that no record's gradient or activations are its "
            "own; use group",
        ),
        (
            any(config.leakage.model_dump().values()),
            "leakage",
            BLOCK,
            f"{many}neither: both are without a promise, and what is sent has one already",
        ),
        (
            bool(config.secure_aggregation.layers),
            "secure_aggregation.layers",
            config.secure_aggregation.layers,
            f"{many}[]",
        ),
        (
            training.participants is not None or training.participation is not None,
            "training.participants",
            training.participants or training.participation,
            f"{many}null: tiers are planned for all devices",
        ),
        (plan.network.elected, "topology.super_nodes.kind", "elected", f"{many}fixed"),
        (training.backend == "stacked", "training.backend", "stacked", f"{many}auto"),
        (
            config.tiering.profile == "paper" and get_algorithm(algorithm).tiers is None,
            "tiering.profile",
            "paper",
            f"{many}clock: D's Table 2 is of whole local epochs",
        ),
        (
            privacy.labels == "randomised" and privacy.secure_rng,
            "privacy.labels",
            "randomised",
            "is drawn once a record, and privacy.secure_rng draws anew whenever a run is resumed; "
            "use public, or secure_rng: false",
        ),
    ]
    for wrong, key, value, remedy in cases:
        if wrong:
            raise InputError(key, value, remedy)


def _check_no_splits(config: Config) -> None:
    """Refuse keys that nobody reads."""
    usual = Config()
    for key in _OF_SPLITS:
        block, name = key.split(".")
        value = getattr(getattr(config, block), name)
        if value != getattr(getattr(usual, block), name):
            raise InputError(
                key,
                value,
                f"belongs to algorithm: m2fdp_tiers or dtfl_dp, not to {config.algorithm}",
            )


def check_not_split(config: Config, plan: Plan) -> None:
    """Refuse audit, bound and attack of a run whose devices split their model.

    Raises:
        InputError: they do.
    """
    if plan.network.splits is not None:
        raise InputError(
            "algorithm",
            config.algorithm,
            "splits its model, and audit, bound and attack are made for whole ones; its ledger "
            "below trusted servers is that of m2fdp, which can be audited",
        )


def _cuts(config: Config, shape: tuple[Shape, int]) -> int:
    """n, the places where the model that is trained can be cut."""
    return build_split_model(config.model, *shape, None, []).n_tiers


def _billed(config: Config, shape: tuple[Shape, int]) -> Billed:
    every = range(1, _cuts(config, shape) + 1)
    trained = module_costs(build_split_model(config.model, *shape, None, every))
    return billed_at(clock_costs(config.clock, trained), len(every))
