"""Draws from the operating system's entropy, by a cipher."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

_WORD = 8
_KEY_BYTES = 32


@dataclass(frozen=True)
class CipherStreams:
    """Streams that nobody but who has the seed can foresee (`m2fdp.core.streams.Streams`).

    Each is ChaCha20's keystream under a key of 256 bits, which BLAKE2b makes of the seed and the
    stream's name: what tells it from random words breaks one of the two. The numbers made of it are
    floats; that their least digits may tell something of what they are added to (Mironov 2012) is
    not met here.

    Attributes:
        seed: 256 bits of the operating system's entropy.
    """

    seed: bytes = field(repr=False)

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """The same stream whenever it is asked for by the same name."""
        name = "|".join((purpose, *map(str, indices)))
        key = blake2b(name.encode(), digest_size=_KEY_BYTES, key=self.seed).digest()
        return cast(np.random.Generator, _Keystream(key))


class _Keystream:
    """What the library asks of a generator and of its bits."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    @property
    def bit_generator(self) -> _Keystream:
        """The words behind the numbers."""
        return self

    def advance(self, delta: int) -> None:
        """Nothing: a place in a stream matters where others draw from it, too."""

    def random_raw(self, size: int) -> np.ndarray:
        """The next words, uint64 (size,)."""
        return np.frombuffer(self._cipher.update(bytes(_WORD * size)), np.uint64)

    def random(self, size: int) -> np.ndarray:
        """Uniform numbers in [0, 1), float64 (size,), as NumPy makes them of words."""
        return (self.random_raw(size) >> np.uint64(11)) * 2.0**-53
