"""Experiments, the default configuration with a few keys changed; and runs put together from parts
that no configuration asks for."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from m2fdp import load_config
from m2fdp.adversaries.heard import heard_by
from m2fdp.core.config import DatasetConfig, ModelConfig, PrivacyConfig, ThreatConfig
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.rules import Rules
from m2fdp.core.engine.tree_process import TreeProcess, build_process
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.calibration import CalibratedMechanism, no_privacy
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Randomness, seeded
from m2fdp.core.topology.network import Network, no_noise
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import all_untrusted
from m2fdp.experiment import Experiment
from m2fdp.tiers.split_models import SplitModel, build_split_model


def experiment_of(
    *changes: Mapping[str, Any], change_data: Callable[[Dataset], Dataset] | None = None
) -> Experiment:
    """An experiment on digits, or on what `change_data` makes of them.

    Args:
        changes: of the defaults, one after the other, nested or with dotted keys.
    """
    dataset = change_data(digits()) if change_data else digits()
    return Experiment.from_config(load_config(*changes), dataset)


@cache
def digits() -> Dataset:
    """Loaded once, for all tests of a process."""
    return load_dataset(DatasetConfig())


def records_of(
    sizes: Sequence[int], shape: tuple[int, int, int] = (8, 8, 1), n_classes: int = 10
) -> tuple[Dataset, pd.DataFrame]:
    """Random images (H, W, C), and a manifest that deals so many to each device."""
    rng = np.random.default_rng(1)
    total = sum(sizes)
    images = rng.random((total, *shape), dtype=np.float32)
    labels = rng.integers(n_classes, size=total)
    manifest = pd.DataFrame(
        {
            "dataset": "npz",
            "sample": np.arange(total),
            "split": "train",
            "label": labels,
            "device": np.repeat(np.arange(len(sizes)), sizes),
        }
    )
    return Dataset("npz", images, labels, n_train=total, n_classes=n_classes), manifest


class Offset(nn.Module):
    """Scores = parameter - feature."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))

    def forward(self, features):
        return self.theta - features.flatten(1)


def quadratic() -> Model:
    """The model of one number w with the loss (w - c)²/2, so the gradient w - c and beta = 1."""
    return Model("offset", Offset(), lambda s, _: s.square().sum(-1) / 2, linear=False)


def premises_of(
    network: Network,
    plans: Sequence[RoundPlan],
    privacy: Mapping[str, Any] | PrivacyConfig,
    threat: Mapping[str, Any] | None = None,
    sizes: Any = 100,
    rates: Any = 1.0,
) -> Premises:
    """What a mechanism is built for; all devices have one size and rate, or each its own."""
    n = network.tree.n_devices
    config = privacy if isinstance(privacy, PrivacyConfig) else PrivacyConfig(**privacy)
    numbers = np.broadcast_to(sizes, n).astype(int), np.broadcast_to(rates, n).astype(float)
    return Premises(network, *numbers, plans, config, ThreatConfig(**(threat or {})))


def one_record_each(features: torch.Tensor) -> Shards:
    """Shards of devices (N_L, C, H, W) with one record each, of class 0."""
    n = len(features)
    return Shards(features, torch.zeros(n, dtype=torch.int64), np.ones(n, dtype=int), np.ones(n))


def without_noise(tree: Tree) -> tuple[Network, CalibratedMechanism]:
    """A network that nobody in trusts, and a mechanism that neither clips nor noises."""
    network = Network(tree, all_untrusted(tree), no_noise(tree))
    return network, no_privacy(network, (), PrivacyConfig(mechanism="upload"), ThreatConfig())


def split_resnet(
    depth: int, width: int, shape, n_classes: int, seed: int | None = None
) -> SplitModel:
    """D's ResNet with the heads of its seven tiers; shapes only, without a seed."""
    config = ModelConfig(name="resnet", depth=depth, width=width)
    return build_split_model(config, shape, n_classes, seed, range(1, 8))


def split_scores(
    model: SplitModel, tier: int, features: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The server's scores and the client's, (B, classes) each, at the initial weights; no gradient
    of the server's flows back through what is sent (D eqs 3 and 4)."""
    sent = model.modules[:tier](features)
    return model.modules[tier:](sent.detach()), model.heads[str(tier)](sent)


def process_of(
    network,
    mechanism,
    model,
    shards,
    randomness: Randomness | None = None,
    rules: Rules | None = None,
    **settings,
) -> TreeProcess:
    """The rounds of one network, with streams of the test's own."""
    simulation = Simulation(
        (network,), (mechanism,), model, shards, randomness or seeded(0, b"test"), rules or Rules()
    )
    return build_process(simulation, ExecutionSettings(**settings))


def executed(experiment: Experiment, **settings) -> TreeProcess:
    """The rounds of an experiment, executed as `ExecutionSettings` say."""
    return build_process(experiment.simulation(), ExecutionSettings(**settings))


def last_state(process: TreeProcess, plans: Sequence[RoundPlan], tap=None) -> State:
    """The state after all rounds, heard by a tap or not."""
    state = process.start()
    process = process if tap is None else heard_by(process, tap)
    for plan in plans:
        state = process.round(state, plan)
    return state
