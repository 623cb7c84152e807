"""How a simulation is executed: tiles, processes and memory. None of it changes a result."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from m2fdp.models.split import SplitModel
from m2fdp.simulation.aggregation import Aggregator, build_aggregator
from m2fdp.simulation.backends import Backend, build_backend
from m2fdp.simulation.backends.reference import ReferenceBackend
from m2fdp.simulation.backends.sequential import SequentialBackend
from m2fdp.simulation.learners import minibatch_law
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.splits import Splitter, build_splitter
from m2fdp.simulation.workers import Workers, shared_tensor

# A tile's models should stay in the processor's cache between two of its steps, or keep a GPU busy.
_TILE_BYTES, _TILE_BYTES_ON_A_GPU = 2**21, 2**27
_SMALLEST_TILE = 8
# Models kept between two sums.
_RESULT_BYTES = 2**26
# Models of a head layer begin at a multiple of so many rows of the results, whose place in memory
# is then the same for all that is computed with it: convolutions round by where their filters lie.
ALIGNED_ROWS = 16


@dataclass(frozen=True)
class ExecutionSettings:
    """What a user may choose.

    Attributes:
        backend: see `m2fdp.simulation.backends.build_backend`.
        chunk_size: learners stepped at a time; bounds memory. None = as many as fit the cache,
            or keep a GPU busy.
        workers: processes that share the steps, on a CPU.
    """

    backend: str = "auto"
    chunk_size: int | None = None
    workers: int = 1


@dataclass(eq=False)
class Executor:
    """The means to run a simulation; they are written to.

    Attributes:
        tile: learners stepped at a time.
        results: (n, M), the models of the learners that are stepped between two sums; used again
            and again, since fresh memory costs more than a step reads.
        aggregators: one for each of the simulation's networks.
        splitter: steps the devices, where they split the model.
    """

    backend: Backend
    workers: Workers
    tile: int
    results: Tensor
    aggregators: tuple[Aggregator, ...]
    splitter: Splitter | None = None


def build_executor(simulation: Simulation, settings: ExecutionSettings) -> Executor:
    """The means to run a simulation.

    Raises:
        ValueError: gradients are to be clipped class by class, of a model that is not linear.
    """
    shards, model, mechanism = simulation.shards, simulation.model, simulation.mechanisms[0]
    if mechanism.clipping.by_class and not model.linear:
        raise ValueError("gradients of models that are not linear have no part of a class")
    device, dtype = shards.features.device, shards.features.dtype
    backend = build_backend(
        model,
        settings.backend,
        minibatch_law(mechanism, shards),
        device,
        simulation.rules.clip_factor,
    )
    learners = len(mechanism.lock_step.nodes)
    model_bytes, on_cpu = 4 * model.n_parameters, device.type == "cpu"
    fitting = (_TILE_BYTES if on_cpu else _TILE_BYTES_ON_A_GPU) // model_bytes
    tile = min(settings.chunk_size or max(fitting, _SMALLEST_TILE), learners)
    tile = -(-tile // backend.group) * backend.group
    at_a_time = min(max(tile, _RESULT_BYTES // model_bytes), learners)
    at_a_time = -(-at_a_time // backend.group) * backend.group
    at_a_time += ALIGNED_ROWS * simulation.networks[0].tree.depth
    return Executor(
        backend,
        Workers(settings.workers if on_cpu else 1),
        tile,
        shared_tensor(at_a_time, model.n_parameters, dtype).to(device),
        tuple(build_aggregator(network, shards.features) for network in simulation.networks),
        _splitter(simulation, settings.backend),
    )


def _splitter(simulation: Simulation, backend: str) -> Splitter | None:
    """What steps the devices, where they split the model: one after the other, or, to be checked
    by eye, one record after the other."""
    splits, model = simulation.splits, simulation.model
    if splits is None or not isinstance(model, SplitModel):
        return None
    factor = simulation.rules.clip_factor
    way = ReferenceBackend if backend == "reference" else SequentialBackend
    return build_splitter(
        splits, model, simulation.mechanisms, simulation.randomness, lambda part: way(part, factor)
    )
