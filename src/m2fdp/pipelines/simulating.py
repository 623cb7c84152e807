"""From the data that pipelines pass on to a simulation of the library."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.algorithms import Plan
from m2fdp.config import ModelConfig, TrainingConfig
from m2fdp.data.dataset import Dataset, features
from m2fdp.data.manifest import shards_of
from m2fdp.models.registry import build_model
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.simulation.records import Shards
from m2fdp.simulation.sampling import sampling_rates
from m2fdp.simulation.simulation import Simulation, build_simulation
from m2fdp.simulation.workers import available_cores


def configured_simulation(
    plan: Plan,
    mechanism: Mechanism,
    dataset: Dataset,
    manifest: pd.DataFrame,
    model: ModelConfig,
    training: TrainingConfig,
    seed: int,
    device: str,
    threads: int | None,
) -> Simulation:
    """The simulation of a run, with the devices' records on the compute device."""
    shards = shards_of(manifest)
    return build_simulation(
        plan.network,
        mechanism,
        plan.schedule,
        build_model(model, dataset.shape, dataset.n_classes, seed),
        Shards(
            *records(dataset, shards.samples, device),
            sizes=shards.sizes,
            rates=sampling_rates(shards.sizes, training.batch_size),
        ),
        seed,
        training.backend,
        training.chunk_size,
        threads or available_cores(),
    )


def records(dataset: Dataset, samples: np.ndarray, device: str) -> tuple[Tensor, Tensor]:
    """Features (R, C, H, W) and labels (R,) of some samples on the compute device."""
    return (
        torch.as_tensor(features(dataset.images[samples]), device=device),
        torch.as_tensor(dataset.labels[samples], device=device),
    )
