"""All that determines a run, put together, and where it stands between rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m2fdp.models.registry import Model
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.schedule.schedule import Schedule
from m2fdp.simulation.aggregation import Aggregator, build_aggregator
from m2fdp.simulation.backends import Backend, build_backend
from m2fdp.simulation.learners import minibatch_law
from m2fdp.simulation.records import Shards
from m2fdp.simulation.workers import Workers, shared_tensor
from m2fdp.streams import Randomness
from m2fdp.topology.network import Network

# A tile's models should stay in the processor's cache between two of its steps, or keep a GPU busy.
_TILE_BYTES, _TILE_BYTES_ON_A_GPU = 2**21, 2**27
_SMALLEST_TILE = 8
# Models kept between two sums.
_RESULT_BYTES = 2**26


@dataclass(frozen=True, eq=False)
class Simulation:
    """Everything that determines a run, and the means to run it.

    Attributes:
        tile: learners stepped at a time.
        results: (n, M), the models of the learners that are stepped between two sums; used again
            and again, since fresh memory costs more than a step reads.
    """

    network: Network
    mechanism: CalibratedMechanism
    schedule: Schedule
    model: Model
    shards: Shards
    aggregator: Aggregator
    randomness: Randomness
    workers: Workers
    tile: int
    backend: Backend
    results: Tensor


@dataclass(frozen=True, eq=False)
class State:
    """After `round` finished rounds the global model is `weights`, (M,)."""

    round: int
    weights: Tensor


def build_simulation(
    network: Network,
    mechanism: CalibratedMechanism,
    schedule: Schedule,
    model: Model,
    shards: Shards,
    randomness: Randomness,
    backend: str = "auto",
    chunk_size: int | None = None,
    workers: int = 1,
) -> Simulation:
    """Put the parts of a run together.

    Args:
        randomness: its noise must not be that of another simulation, nor of other records.
        backend: see `m2fdp.simulation.backends.build_backend`.
        chunk_size: learners stepped at a time; bounds memory and changes no result. None =
            as many as fit the cache, or keep a GPU busy.
        workers: processes that share the steps, on a CPU; changes no result.
    """
    device = shards.features.device
    workers = workers if device.type == "cpu" else 1
    law = minibatch_law(mechanism, shards)
    chosen = build_backend(model, backend, law, device)
    learners = len(mechanism.lock_step.nodes)
    tile = min(chunk_size or _fitting_tile(model.n_parameters, device), learners)
    tile = -(-tile // chosen.group) * chosen.group
    at_a_time = min(max(tile, _fitting_results(model.n_parameters)), learners)
    at_a_time = -(-at_a_time // chosen.group) * chosen.group
    dtype = shards.features.dtype
    return Simulation(
        network,
        mechanism,
        schedule,
        model,
        shards,
        build_aggregator(network, dtype, device),
        randomness,
        Workers(workers),
        tile,
        chosen,
        shared_tensor(at_a_time, model.n_parameters, dtype).to(device),
    )


def with_participation(
    simulation: Simulation, network: Network, mechanism: CalibratedMechanism
) -> Simulation:
    """The same run over a network in which others take part, with the mechanism for it."""
    features = simulation.shards.features
    aggregator = build_aggregator(network, features.dtype, features.device)
    return replace(simulation, network=network, mechanism=mechanism, aggregator=aggregator)


def initial_state(simulation: Simulation) -> State:
    """w^(1), before the first round."""
    return State(0, simulation.model.initial_vector().to(simulation.shards.features))


def _fitting_tile(n_parameters: int, device: torch.device) -> int:
    """Learners whose models fit the cache, or a GPU's memory many times."""
    tile_bytes = _TILE_BYTES if device.type == "cpu" else _TILE_BYTES_ON_A_GPU
    return max(tile_bytes // (4 * n_parameters), _SMALLEST_TILE)


def _fitting_results(n_parameters: int) -> int:
    """Learners whose models are kept at a time."""
    return max(_RESULT_BYTES // (4 * n_parameters), 1)
