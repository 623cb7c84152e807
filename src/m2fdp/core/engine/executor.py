"""How a simulation is executed: tiles, processes and memory. None of it changes a result."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, build_aggregator
from m2fdp.core.engine.backends import Backend, build_backend
from m2fdp.core.engine.backends.reference import ReferenceBackend
from m2fdp.core.engine.backends.sequential import SequentialBackend
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.subtrees import Part, blocks_of, can_be_cut, part_of, whole_of
from m2fdp.processes.workers import Workers, shared_tensor
from m2fdp.tiers.split_models import SplitModel
from m2fdp.tiers.split_steps import Splitter, build_splitter

# A tile's models should stay in the processor's cache between two of its steps, or keep a GPU busy.
_TILE_BYTES, _TILE_BYTES_ON_A_GPU = 2**21, 2**27
_SMALLEST_TILE = 8
# Models kept between two sums.
_RESULT_BYTES = 2**26
# A learner's model has its place among the results up to a multiple of so many rows, whatever part
# it is stepped in: convolutions round by where their filters lie.
ALIGNED_ROWS = 16
# A step of a learner costs as much as so many records, whatever records it uses.
_STEP_COST = 8.0


@dataclass(frozen=True)
class ExecutionSettings:
    """What a user may choose.

    Attributes:
        backend: see `m2fdp.core.engine.backends.build_backend`.
        chunk_size: learners stepped at a time; bounds memory. None = as many as fit the cache,
            or keep a GPU busy.
        workers: processes that share the steps, on a CPU.
    """

    backend: str = "auto"
    chunk_size: int | None = None
    workers: int = 1


@dataclass(eq=False)
class Means:
    """What a part of a simulation is computed by; they are written to.

    Attributes:
        tile: learners stepped at a time.
        results: (n, M), the models of the learners that are stepped between two sums; used again
            and again, since fresh memory costs more than a step reads.
        aggregators: those of the part's networks.
        splitter: steps the devices, where they split the model.
    """

    backend: Backend
    tile: int
    results: Tensor
    aggregators: tuple[Aggregator, ...]
    splitter: Splitter | None = None


@dataclass(eq=False)
class Executor:
    """The means to run a simulation.

    Attributes:
        settings: what a user chose.
        workers: processes that share the blocks.
        costs: float64 (n,), what a round of each block costs about, in records a local step.
        in_blocks: whether rounds can be cut into blocks; else there is one.
        sums: (n, M), what each block adds to the cloud's sum, in memory that processes share.
        whole: all of the simulation, computed in one.
        parts: those that this process computes, by their blocks.
    """

    settings: ExecutionSettings
    workers: Workers
    costs: np.ndarray
    in_blocks: bool
    sums: Tensor
    whole: tuple[Part, Means]
    parts: dict[range, tuple[Part, Means]] = field(default_factory=dict)

    def part(self, blocks: range) -> tuple[Part, Means]:
        """Some blocks, and what they are computed by."""
        if blocks not in self.parts:
            part = part_of(self.whole[0].simulation, blocks)
            self.parts[blocks] = part, build_means(part, self.settings)
        return self.parts[blocks]


def build_executor(simulation: Simulation, settings: ExecutionSettings) -> Executor:
    """The means to run a simulation."""
    shards, model = simulation.shards, simulation.model
    device, tree = shards.features.device, simulation.networks[0].tree
    whole = whole_of(simulation)
    means = build_means(whole, settings)
    # Kernels that take several learners at once round by which they are.
    in_blocks = means.backend.group == 1 and can_be_cut(simulation)
    blocks = blocks_of(tree) if in_blocks else np.zeros(tree.n_nodes(1), dtype=np.int64)
    costs = np.bincount(blocks[tree.ancestors[1]], weights=_STEP_COST + shards.rates * shards.sizes)
    sums = shared_tensor(len(costs), model.n_parameters, shards.features.dtype).to(device)
    workers = Workers(settings.workers if device.type == "cpu" else 1)
    return Executor(settings, workers, costs, in_blocks, sums, (whole, means))


def build_means(part: Part, settings: ExecutionSettings) -> Means:
    """What a part is computed by; the same arithmetic for all parts."""
    simulation = part.simulation
    features, model = simulation.shards.features, simulation.model
    backend = build_backend(
        model,
        settings.backend,
        part.law,
        features.device,
        simulation.rules.clip_factor,
    )
    learners = len(part.groups)
    model_bytes, on_cpu = 4 * model.n_parameters, features.device.type == "cpu"
    fitting = (_TILE_BYTES if on_cpu else _TILE_BYTES_ON_A_GPU) // model_bytes
    tile = min(settings.chunk_size or max(fitting, _SMALLEST_TILE), learners)
    tile = -(-tile // backend.group) * backend.group
    at_a_time = min(max(tile, _RESULT_BYTES // model_bytes), learners)
    at_a_time = -(-at_a_time // backend.group) * backend.group + ALIGNED_ROWS
    results = shared_tensor(at_a_time, model.n_parameters, features.dtype).to(features.device)
    aggregators = tuple(
        build_aggregator(network, features, part.blocks) for network in simulation.networks
    )
    return Means(backend, tile, results, aggregators, splitter_of(simulation, settings.backend))


def splitter_of(simulation: Simulation, backend: str) -> Splitter | None:
    """What steps the devices, where they split the model: one after the other, or, to be checked
    by eye (`reference`), one record after the other."""
    splits, model = simulation.splits, simulation.model
    if splits is None or not isinstance(model, SplitModel):
        return None
    factor = simulation.rules.clip_factor
    way = ReferenceBackend if backend == "reference" else SequentialBackend
    return build_splitter(
        splits, model, simulation.mechanisms, simulation.randomness, lambda part: way(part, factor)
    )
