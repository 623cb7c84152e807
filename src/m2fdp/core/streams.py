"""Random streams: every draw comes from a generator of its own, named by what it is for.

A name is a purpose and indices, such as ("minibatch", round, step). A keyed stream follows from a
seed and its name, so a result depends on no chunking, worker count or order of evaluation. Two
algorithms with one seed see the same minibatches. Noise is keyed by what is released, too:
the same noise in two releases that differ would drop out of their difference.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.random.bit_generator import ISeedSequence

_KEY_BYTES = 16


class Streams(Protocol):
    """Generators by name."""

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """A generator (Philox, 128 bits of key) at the start of the stream of that name."""


@dataclass(frozen=True)
class KeyedStreams:
    """Streams that repeat.

    Attributes:
        seed: the run's seed.
        release: a key of 64 bytes or less; no two values share a stream.
    """

    seed: int
    release: bytes = b""

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """The same generator whenever it is asked for by the same name."""
        # NumPy takes an ISeedSequence, which its own annotation leaves out.
        key = _Key(self.key(purpose, *indices))
        return np.random.Generator(np.random.Philox(key))  # type: ignore[arg-type]

    def key(self, purpose: str, *indices: int) -> bytes:
        """128 bits, a digest of all that names the stream. No two names have the same text.

        Raises:
            ValueError: a purpose with the sign that separates the parts.
        """
        return _digest(self.seed, purpose, indices, _KEY_BYTES, self.release)


@dataclass(frozen=True)
class Randomness:
    """Where a run's draws come from.

    Attributes:
        sampling: who takes part, and the minibatches.
        noise: the mechanism's.
    """

    sampling: Streams
    noise: Streams


def seeded(seed: int, released: bytes) -> Randomness:
    """Draws that repeat.

    Args:
        released: all that a release depends on besides the seed. Runs that differ in it share
            participants and minibatches, and no noise.
    """
    return Randomness(KeyedStreams(seed), KeyedStreams(seed, blake2b(released).digest()))


def generator(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A generator that is keyed by the seed alone."""
    return KeyedStreams(seed).generator(purpose, *indices)


def digest_of(text: str, arrays: Iterable[np.ndarray]) -> bytes:
    """64 bytes that tell a text and arrays from all others."""
    digest = blake2b(text.encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def torch_seed(seed: int, purpose: str) -> int:
    """A seed for torch's own generator, which keeps 32 bits of it: for no noise."""
    return int.from_bytes(_digest(seed, purpose, (), 8), "little") >> 1


def _digest(
    seed: int, purpose: str, indices: tuple[int, ...], size: int, release: bytes = b""
) -> bytes:
    if "|" in purpose:
        raise ValueError(f"a purpose without |, not {purpose!r}")
    text = f"{seed}|{purpose}|{'|'.join(map(str, indices))}"
    return blake2b(text.encode(), digest_size=size, key=release).digest()


@dataclass(frozen=True)
class _Key(ISeedSequence):
    """Hands a key on as it is; NumPy's own argument `key` costs 6 us more, for entropy unused."""

    key: bytes

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """The key as words; Philox asks for two of 64 bits."""
        return np.frombuffer(self.key, dtype, n_words)
