"""Gaussian noise: one vector a message, or one for all messages that only feed a sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi
from typing import cast

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.philox import WORDS, random_words
from m2fdp.core.streams import Streams

# Numbers drawn at a time: they save calls and stay in the cache, or fit a GPU's memory.
_NUMBERS_AT_A_TIME = 2**16
_NUMBERS_ON_A_GPU = 2**24


@dataclass(frozen=True, eq=False)
class RoundNoise:
    """The noise of round t = `number`: a stream a purpose, step and layer; in it a place a node.

    Attributes:
        unit: factor from the mechanism's deviations to a model's.
        first: place of the first node of each layer l = 0…L; 0 except in a part of a tree.
    """

    streams: Streams
    number: int
    unit: float
    first: tuple[int, ...]

    def of_round(self, number: int) -> RoundNoise:
        return replace(self, number=number)

    def add(
        self,
        step: int,
        purpose: str,
        layer: int,
        scales: np.ndarray,
        models: Tensor,
        nodes: np.ndarray | None = None,
    ) -> None:
        """Add independent Gaussian noise of a local step to models (n, M), in place.

        Args:
            scales: float64 (n,), standard deviations in the mechanism's unit.
            nodes: int64 (n,), the nodes of the layer that draw it; None = all.
        """
        rows = np.flatnonzero(scales)
        if not len(rows):
            return
        stream = self.streams.generator(purpose, self.number, step, layer)
        nodes = rows if nodes is None else nodes[rows]
        add_noise(models, rows, self.unit * scales[rows], stream, nodes + self.first[layer])


def add_noise(
    models: Tensor,
    rows: np.ndarray,
    deviations: np.ndarray,
    stream: np.random.Generator,
    nodes: np.ndarray,
) -> None:
    """Add to some rows int64 (n,) of models (N, M) Gaussian noise of deviations (n,), in place.

    Args:
        stream: generator at its start, of which each node has its own part.
        nodes: int64 (n,), the node of each row.
    """
    device = models.device
    on_cpu = device.type == "cpu"
    at_a_time = max((_NUMBERS_AT_A_TIME if on_cpu else _NUMBERS_ON_A_GPU) // models.shape[1], 1)
    bits, place = _philox(stream), 0
    for start in range(0, len(rows), at_a_time):
        part = slice(start, start + at_a_time)
        if on_cpu:
            numbers, place = _standard_normals(bits, place, nodes[part], models)
            drawn = torch.from_numpy(numbers)
        else:
            drawn = standard_normals_on_device(stream, nodes[part], models)
        drawn *= torch.as_tensor(deviations[part, None], device=device).to(drawn.dtype)
        models.index_add_(0, torch.as_tensor(rows[part], device=device), drawn)


def standard_normals(stream: np.random.Generator, nodes: np.ndarray, models: Tensor) -> Tensor:
    """A standard normal vector for each of some nodes, (n, M), as `add_noise` draws it for models
    (…, M) on a CPU: in float64 if they are, else in float32."""
    drawn, _ = _standard_normals(_philox(stream), 0, nodes, models)
    return torch.from_numpy(drawn)


def standard_normals_on_device(
    stream: np.random.Generator, nodes: np.ndarray, models: Tensor
) -> Tensor:
    """The same vectors where `models` are, up to the rounding of logarithms and cosines. A GPU
    takes about 3 ms for any number of vectors (benchmarks/README.md)."""
    itemsize, size = _drawn_in(models).itemsize, models.shape[-1]
    blocks = -(-size * itemsize // (8 * WORDS))
    firsts = torch.as_tensor(nodes * blocks, device=models.device)
    places = firsts[:, None] + torch.arange(blocks, device=models.device)
    key = stream.bit_generator.state["state"]["key"].tolist()
    words = random_words(key, places).view(torch.int64 if itemsize == 8 else torch.int32)
    floats = words.view(len(nodes), 2, -1).to(torch.float64 if itemsize == 8 else torch.float32)
    radii, angles = floats.unbind(1)
    bits = 8 * itemsize
    radii = radii.abs().mul_(2.0 ** (1 - bits)).add_(2.0**-bits).log_().mul_(-2).sqrt_()
    angles = angles * (pi * 2.0 ** (1 - bits))
    return torch.cat([angles.cos() * radii, angles.sin() * radii], dim=1)[:, :size]


def _drawn_in(models: Tensor) -> np.dtype:
    return np.dtype(np.float64 if models.dtype == torch.float64 else np.float32)


def _philox(stream: np.random.Generator) -> np.random.Philox:
    return cast(np.random.Philox, stream.bit_generator)  # as all streams have it


def _standard_normals(
    bits: np.random.Philox, place: int, nodes: np.ndarray, models: Tensor
) -> tuple[np.ndarray, int]:
    """The vectors and the counter after them; `place` is the counter before. Node i's part starts
    at i times the length of one vector."""
    dtype, size = _drawn_in(models), models.shape[-1]
    blocks = -(-size * dtype.itemsize // (8 * WORDS))
    uniform = np.empty((2, len(nodes), blocks * WORDS * 4 // dtype.itemsize), dtype)
    ends = np.append(np.flatnonzero(np.diff(nodes) != 1) + 1, len(nodes))
    first = 0
    for end in ends.tolist():
        bits.advance(int(nodes[first]) * blocks - place)
        words = bits.random_raw((end - first) * blocks * WORDS).view(f"i{dtype.itemsize}")
        uniform[:, first:end] = words.reshape(end - first, 2, -1).swapaxes(0, 1)
        place, first = (int(nodes[end - 1]) + 1) * blocks, end
    return _box_muller(*uniform)[:, :size], place


def _box_muller(radii: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Standard normal numbers (n, 2 m) from two arrays (n, m) of uniform signed integers, as floats
    of their width, which are overwritten.

    NumPy's own method takes twice the time. No number is beyond 6.7 in float32, 9.4 in float64.
    """
    dtype, bits = radii.dtype.type, 8 * radii.dtype.itemsize
    np.abs(radii, out=radii)
    radii *= dtype(2.0 ** (1 - bits))
    radii += dtype(2.0**-bits)  # in (0, 1]
    np.log(radii, out=radii)
    radii *= dtype(-2)
    np.sqrt(radii, out=radii)
    angles *= dtype(pi * 2.0 ** (1 - bits))
    drawn = np.empty((len(radii), 2, radii.shape[1]), dtype)
    np.cos(angles, out=drawn[:, 0])
    np.sin(angles, out=drawn[:, 1])
    drawn *= radii[:, None]
    return drawn.reshape(len(radii), -1)
