"""What a run in tiers is made of: the model and the process of its way."""

from __future__ import annotations

import numpy as np

from m2fdp.core.config import Config
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.names import SPLIT_MODELS
from m2fdp.core.models.registry import Model
from m2fdp.core.topology.builders import build_tree
from m2fdp.tiers.local import local_training
from m2fdp.tiers.process import TierProcess, build_tier_process
from m2fdp.tiers.split_models import build_split_model
from m2fdp.tiers.transfer import TransferProcess, build_transfer_process
from m2fdp.tiers.transfer_models import build_transfer_model
from m2fdp.tiers.ways import Way


def build_model_of(way: Way, config: Config, shape: Shape, n_classes: int, seed: int) -> Model:
    """The configured model with its first weights, and the heads that are in use.

    Raises:
        InputError: see `build_split_model`.
    """
    if not way.averaged:
        n_clients = build_tree(config.topology).n_devices
        return build_transfer_model(config.model, shape, n_classes, seed, n_clients)
    cuts = SPLIT_MODELS[config.model.name]
    tiers = range(cuts - config.tiering.tiers + 1, cuts + 1) if way.tiered else ()
    return build_split_model(config.model, shape, n_classes, seed, tiers)


def build_process_of(
    way: Way, config: Config, simulation: Simulation, cuts: np.ndarray, workers: int
) -> TierProcess | TransferProcess:
    """How rounds are computed.

    Args:
        cuts: int64 (R, K), the modules that each client trains itself; below 1 = absent.
        workers: processes that share the clients, on a CPU.
    """
    tiering = config.tiering
    settings = local_training(config, int(simulation.shards.sizes.max()))
    if not way.averaged:
        present, epochs = cuts > 0, tiering.server_epochs
        return build_transfer_process(simulation, present, settings, epochs, workers)
    return build_tier_process(simulation, cuts, settings, tiering.aggregate, workers)
