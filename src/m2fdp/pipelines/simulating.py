"""From the data that pipelines pass on to a simulation of the library."""

from __future__ import annotations

import json
from hashlib import blake2b

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.algorithms import Plan
from m2fdp.config import Config, released
from m2fdp.control.controller import Controller, build_controller
from m2fdp.data.dataset import Dataset, features
from m2fdp.data.manifest import Shards as Samples
from m2fdp.data.manifest import shards_of
from m2fdp.models.registry import build_model
from m2fdp.privacy.calibration import who_steps_together
from m2fdp.privacy.mechanisms import Mechanism
from m2fdp.simulation.executor import ExecutionSettings
from m2fdp.simulation.minibatches import Shards
from m2fdp.simulation.sampling import sampling_rates
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.tree_process import TreeProcess, build_process
from m2fdp.simulation.workers import available_cores
from m2fdp.streams import Randomness, from_entropy, seeded
from m2fdp.topology.network import Network


def configured_process(
    networks: tuple[Network, ...],
    mechanisms: tuple[Mechanism, ...],
    dataset: Dataset,
    manifest: pd.DataFrame,
    config: Config,
) -> TreeProcess:
    """The rounds of a run, with the devices' records on the compute device."""
    shards = shards_of(manifest)
    simulation = Simulation(
        networks,
        mechanisms,
        build_model(config.model, dataset.shape, dataset.n_classes, config.seed),
        Shards(
            *records(dataset, shards.samples, config.device),
            sizes=shards.sizes,
            rates=sampling_rates(shards.sizes, config.training.batch_size),
        ),
        _randomness(config, networks[0], dataset, shards),
    )
    settings = ExecutionSettings(
        config.training.backend, config.training.chunk_size, config.threads or available_cores()
    )
    return build_process(simulation, settings)


def configured_controller(
    plan: Plan, dataset: Dataset, manifest: pd.DataFrame, config: Config
) -> Controller | None:
    """The controller of a run that has one."""
    if not config.control.enabled:
        return None
    rates = sampling_rates(shards_of(manifest).sizes, config.training.batch_size)
    return build_controller(
        plan.network,
        who_steps_together(plan.network, config.privacy),
        plan.schedule,
        build_model(config.model, dataset.shape, dataset.n_classes, seed=0).n_parameters,
        float(rates.max()),
        config.resources,
        config.privacy,
        config.control,
    )


def records(dataset: Dataset, samples: np.ndarray, device: str) -> tuple[Tensor, Tensor]:
    """Features (R, C, H, W) and labels (R,) of some samples on the compute device."""
    return (
        torch.as_tensor(features(dataset.images[samples]), device=device),
        torch.as_tensor(dataset.labels[samples], device=device),
    )


def _randomness(config: Config, network: Network, dataset: Dataset, samples: Samples) -> Randomness:
    """A run's draws. Noise is keyed by all that a release depends on, down to the records.

    Files may change under one configuration: were the noise of the run before used again, the
    difference of the two models would be that of the records, in clear.
    """
    if config.privacy.secure_rng:
        return from_entropy()
    digest = blake2b(json.dumps(released(config), sort_keys=True).encode())
    for array in (
        *network.tree.parents,
        *network.trust,
        samples.sizes,
        dataset.labels[samples.samples],
        dataset.images[samples.samples],
    ):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return seeded(config.seed, digest.digest())
