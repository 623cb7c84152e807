"""Masks: uniform words modulo 2^32 that cancel in the sum, or that shares can take away."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from m2fdp.secure_aggregation.keys import KeyPair, agree, derive
from m2fdp.secure_aggregation.terms import Terms


def keystream(key: bytes, n_words: int) -> np.ndarray:
    """ChaCha20's words, uint32 (n_words,), from its start. A key serves once."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    words = np.frombuffer(stream.update(bytes(4 * n_words)), dtype="<u4")
    return words.astype(np.uint32, copy=False)


def own_key(seed: bytes, terms: Terms) -> bytes:
    """The key of the mask that a member's own 32 random bytes b make."""
    return derive(seed, "own mask", terms)


def pair_key(pair: KeyPair, public: bytes, owner: int, terms: Terms) -> bytes:
    """The key of the mask that two members share; see `agree`."""
    return derive(agree(pair, public, owner), "pair mask", terms)


def add_own_mask(words: np.ndarray, key: bytes) -> None:
    """Adds a member's own mask to words uint64 (M,), in place."""
    words += keystream(key, len(words))


def take_own_mask(words: np.ndarray, key: bytes) -> None:
    """Takes a member's own mask from words uint64 (M,), in place."""
    words -= keystream(key, len(words))


def add_pair_mask(words: np.ndarray, key: bytes, member: int, other: int) -> None:
    """Adds what `member` adds for `other`, in place: the opposite of what `other` adds for it."""
    if member < other:
        words += keystream(key, len(words))
    else:
        words -= keystream(key, len(words))
