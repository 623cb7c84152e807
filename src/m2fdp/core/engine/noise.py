"""Gaussian noise: one vector a message, or one for all messages that only feed a sum.

Numbers are made of the words of NumPy's Philox (4x64, 10 rounds; Salmon et al. 2011, "Parallel
Random Numbers: As Easy as 1, 2, 3"), four words of every value of a counter. A GPU makes the same
words itself, a layer's at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import cast

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.streams import Streams

# Numbers drawn at a time: they save calls and stay in the cache, or fit a GPU's memory.
_NUMBERS_AT_A_TIME = 2**16
_NUMBERS_ON_A_GPU = 2**24

WORDS = 4  # 64-bit ones, of one value of the counter
_COUNTER = 2**256  # its values
_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW = 0xFFFFFFFF


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

    def add(
        self,
        step: int,
        purpose: str,
        layer: int,
        scales: np.ndarray,
        models: Tensor,
        nodes: np.ndarray | None = None,
    ) -> None:
        """Add Gaussian noise of deviations float64 (n,), in the mechanism's unit, to models (n, M),
        in place; nodes int64 (n,) of the layer draw it, None = all."""
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
    """Add to some rows int64 (n,) of models (N, M) Gaussian noise of deviations (n,), in place. The
    stream is at its start; the node of each row, int64 (n,), has its own part of it."""
    device, draw, numbers = models.device, standard_normals, _NUMBERS_AT_A_TIME
    if device.type != "cpu":
        draw, numbers = standard_normals_on_device, _NUMBERS_ON_A_GPU
    at_a_time = max(numbers // models.shape[1], 1)
    for start in range(0, len(rows), at_a_time):
        part = slice(start, start + at_a_time)
        drawn = draw(stream, nodes[part], models)
        drawn *= torch.as_tensor(deviations[part, None], device=device).to(drawn.dtype)
        models.index_add_(0, torch.as_tensor(rows[part], device=device), drawn)


def standard_normals(stream: np.random.Generator, nodes: np.ndarray, models: Tensor) -> Tensor:
    """A standard normal vector for each of some nodes, (n, M), as models (…, M) on a CPU get it: in
    float64 if they are, else in float32. Node i's part of the stream starts at i times the length
    of one vector; the stream ends where it was, at its start."""
    bits = cast(np.random.Philox, stream.bit_generator)
    dtype, size, blocks = _layout(models)
    uniform = np.empty((2, len(nodes), blocks * WORDS * 4 // dtype.itemsize), dtype)
    ends = np.append(np.flatnonzero(np.diff(nodes) != 1) + 1, len(nodes))
    place = first = 0
    for end in ends.tolist():
        bits.advance(int(nodes[first]) * blocks - place)
        words = bits.random_raw((end - first) * blocks * WORDS).view(f"i{dtype.itemsize}")
        uniform[:, first:end] = words.reshape(end - first, 2, -1).swapaxes(0, 1)
        place, first = (int(nodes[end - 1]) + 1) * blocks, end
    bits.advance(_COUNTER - place)
    return torch.from_numpy(_box_muller(*uniform)[:, :size])


def standard_normals_on_device(
    stream: np.random.Generator, nodes: np.ndarray, models: Tensor
) -> Tensor:
    """The same vectors where `models` are, up to the rounding of logarithms and cosines. A GPU
    takes about 3 ms for any number of vectors (benchmarks/README.md)."""
    dtype, size, blocks = _layout(models)
    firsts = torch.as_tensor(nodes * blocks, device=models.device)
    places = firsts[:, None] + torch.arange(blocks, device=models.device)
    key = stream.bit_generator.state["state"]["key"].tolist()
    bits, double = 8 * dtype.itemsize, dtype == np.float64
    words = random_words(key, places).view(torch.int64 if double else torch.int32)
    floats = words.view(len(nodes), 2, -1).to(torch.float64 if double else torch.float32)
    radii, angles = floats.unbind(1)
    radii = radii.abs().mul_(2.0 ** (1 - bits)).add_(2.0**-bits).log_().mul_(-2).sqrt_()
    angles = angles * (pi * 2.0 ** (1 - bits))
    return torch.cat([angles.cos() * radii, angles.sin() * radii], dim=1)[:, :size]


def _layout(models: Tensor) -> tuple[np.dtype, int, int]:
    """The type and number M of a vector's numbers, and the values of the counter that it takes."""
    dtype = np.dtype(np.float64 if models.dtype == torch.float64 else np.float32)
    return dtype, models.shape[-1], -(-models.shape[-1] * dtype.itemsize // (8 * WORDS))


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


def random_words(key: Sequence[int], places: Tensor) -> Tensor:
    """Philox's words int64 (…, 4) at values int64 (…) of the counter, with a key of two words.
    Products of torch's signed 64-bit integers wrap around, as the definition asks."""
    multipliers = torch.tensor([_signed(m) for m in _MULTIPLIERS], device=places.device)
    multipliers = multipliers.view(2, *[1] * places.dim())
    halves = multipliers & _LOW, (multipliers >> 32) & _LOW
    # The factors of one round, and what is mixed into their products; the counter is raised first.
    factors = torch.stack([places + 1, torch.zeros_like(places)])
    mixed = torch.zeros_like(factors)
    for number in range(_ROUNDS):
        keys = [_signed(k + number * w) for k, w in zip(key, _WEYL, strict=True)]
        mixed ^= _high(halves, factors).flip(0)
        mixed[0] ^= keys[0]
        mixed[1] ^= keys[1]
        factors, mixed = mixed, (multipliers * factors).flip(0)
    return torch.stack([factors[0], mixed[0], factors[1], mixed[1]], dim=-1)


def _high(halves: tuple[Tensor, Tensor], factors: Tensor) -> Tensor:
    """The upper 64 of the 128 bits of unsigned products, from products of 32-bit halves."""
    (low, high), factors_low, factors_high = halves, factors & _LOW, _upper(factors)
    middle = torch.addcmul(_upper(low * factors_low), high, factors_low)
    carried = torch.addcmul(middle & _LOW, low, factors_high)
    return _upper(middle).add_(_upper(carried)).addcmul_(high, factors_high)


def _upper(words: Tensor) -> Tensor:
    return (words >> 32).bitwise_and_(_LOW)  # the shift keeps the sign


def _signed(word: int) -> int:
    word &= 2**64 - 1
    return word - 2**64 if word >= 2**63 else word
