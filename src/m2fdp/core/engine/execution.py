"""How a simulation is executed: arithmetic, cores, and learners stepped in tiles.

Between two aggregations no learner hears of another, and only sums of models are kept. So learners
are stepped in tiles that fit the cache. Models are added in the order of the learners, so no result
depends on the size of tiles.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, build_aggregator
from m2fdp.core.engine.backends import Backend, build_backend
from m2fdp.core.engine.process import Simulation, shared_tensor
from m2fdp.core.engine.sequential import SequentialBackend

# A tile's models should stay in the processor's cache between two of its steps, or keep a GPU busy.
# One that steps alone reads its own several times in a step, so they should stay in the nearer one.
_TILE_BYTES, _TILE_BYTES_ALONE, _TILE_BYTES_ON_A_GPU = 2**21, 2**19, 2**27
_SMALLEST_TILE = 8
# Models kept between two sums.
_RESULT_BYTES = 2**26
# A learner's row among the results, modulo this number, is the same whatever part it is stepped in:
# sums round by where they lie, modulo 64 bytes.
ALIGNED_ROWS = 16


def set_exact_arithmetic() -> None:
    """One thread an operator, and float32 products in float32, for the whole process.

    Processes share the steps instead of threads (`m2fdp.processes.workers`). TF32, a GPU's
    shortcut for products and convolutions, would round the sums that noise is calibrated for. Of
    its ways to convolve, only those count that repeat their own results.
    """
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


def available_cores(at_most: int | None = None) -> int:
    """The cores that this process may use, or so many of them."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(there or 1, at_most or sys.maxsize)


@dataclass(frozen=True)
class ExecutionSettings:
    """How a simulation is executed; no result depends on it."""

    backend: str = "auto"  # see `build_backend`
    chunk_size: int | None = None  # learners stepped at a time; None = as many as fit the cache
    workers: int = 1  # processes that share the steps, on a CPU


@dataclass(frozen=True, eq=False)
class Place:
    """Where a part of a simulation stands in the whole."""

    first: tuple[int, ...]  # place of the part's first node of each layer l = 0…L among all
    blocks: np.ndarray  # int64 (n_1,), of each node of layer 1; the cloud adds up the blocks' sums
    # Mean and variance of the records that each unit of the whole uses in a step.
    law: tuple[np.ndarray, np.ndarray]
    first_record: int = 0  # its place among all


@dataclass(eq=False)
class Means:
    """What a part of a simulation is computed by."""

    place: Place
    backend: Backend
    tile: int  # learners stepped at a time
    # (n, M), the models of learners between two sums. The memory is used again, since fresh memory
    # costs more than a step reads.
    results: Tensor
    aggregators: tuple[Aggregator, ...]  # one for each network


@dataclass(frozen=True, eq=False)
class Rows:
    """Models of the learners of one head layer: learner i's is `models[rows[i]]`."""

    models: Tensor
    rows: np.ndarray

    def of(self, part: slice, room: Tensor | None = None) -> Tensor:
        """Copies (n, M) of some learners' models, into a given tensor, if there is one."""
        places = torch.as_tensor(self.rows[part], device=self.models.device)
        return torch.index_select(self.models, 0, places, out=room)


def build_means(simulation: Simulation, place: Place, settings: ExecutionSettings) -> Means:
    """What a part is computed by; all parts round alike."""
    features, model = simulation.shards.features, simulation.model
    factor, device = simulation.rules.clip_factor, features.device
    backend = build_backend(model, settings.backend, place.law, device, factor)
    learners = len(simulation.mechanisms[0].lock_step.nodes)
    model_bytes, on_cpu = 4 * model.n_parameters, device.type == "cpu"
    alone = isinstance(backend, SequentialBackend)
    smallest, tile_bytes = (1, _TILE_BYTES_ALONE) if alone else (_SMALLEST_TILE, _TILE_BYTES)
    fitting = (tile_bytes if on_cpu else _TILE_BYTES_ON_A_GPU) // model_bytes
    tile = min(settings.chunk_size or max(fitting, smallest), learners)
    tile = -(-tile // backend.group) * backend.group
    at_a_time = min(max(tile, _RESULT_BYTES // model_bytes), learners)
    at_a_time = -(-at_a_time // backend.group) * backend.group + ALIGNED_ROWS
    results = shared_tensor(at_a_time, model.n_parameters, features.dtype).to(device)
    aggregators = (build_aggregator(of, features, place.blocks) for of in simulation.networks)
    return Means(place, backend, tile, results, tuple(aggregators))


def stepped(
    means: Means,
    ranges: Mapping[int, range],
    before: Mapping[int, int],
    starts: tuple[Mapping[int, Rows], Mapping[int, Rows] | None],
    at_once: bool,
    step: Callable[[range, Tensor, Tensor | None], None],
) -> Iterator[tuple[int, range, Tensor]]:
    """Stepped learners in order: head layer, learners, models (n, M), which the next overwrite.

    Args:
        ranges: learners by head layer, as `Learners` has them.
        before: learners before those of a part, by head layer.
        starts: models that learners start from by head layer, and models that pull them.
        at_once: whether a step may see several learners; an unknown rule could mix them.
        step: a function of a tile, its models (n, M), stepped in place, and models that pull them.
    """
    results, group = means.results, means.backend.group
    room, size = (len(results) - ALIGNED_ROWS) // group * group, means.tile if at_once else 1
    begun, anchors = starts
    for layer, of_layer in ranges.items():
        row = before.get(layer, 0) % ALIGNED_ROWS
        for first in range(of_layer.start, of_layer.stop, room):
            wave = range(first, min(first + room, of_layer.stop))
            models = results[row : row + len(wave)]
            for start in range(wave.start, wave.stop, size):
                tile = range(start, min(start + size, wave.stop))
                places = slice(tile.start - of_layer.start, tile.stop - of_layer.start)
                of_tile = models[tile.start - first : tile.stop - first]
                begun[layer].of(places, room=of_tile)
                step(tile, of_tile, None if anchors is None else anchors[layer].of(places))
            yield layer, wave, models
            row = (row + len(wave)) % ALIGNED_ROWS
