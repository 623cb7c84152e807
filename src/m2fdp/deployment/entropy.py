"""Draws from the operating system's entropy, by a cipher."""

from __future__ import annotations

import os
from typing import cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

_WORD = 8


class CipherStreams:
    """Streams that nobody can foresee or repeat, whatever their names (`m2fdp.streams.Streams`).

    Each is ChaCha20's keystream under a key of 256 bits of the operating system's entropy, which is
    kept nowhere: what tells it from random words breaks the cipher. The numbers made of it are
    floats; that their least digits may tell something of what they are added to (Mironov 2012) is
    not met here.
    """

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """A stream that no other call gives."""
        return cast(np.random.Generator, _Keystream())


class _Keystream:
    """What the library asks of a generator and of its bits."""

    def __init__(self) -> None:
        self._cipher = Cipher(ChaCha20(os.urandom(32), bytes(16)), mode=None).encryptor()

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
