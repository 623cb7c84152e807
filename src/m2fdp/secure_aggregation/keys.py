"""Secrets of one round: X25519 keys and what two members derive of them, masks, and shares.

Whatever is derived is bound to its purpose, to the round and to the group, so that nothing of one
round fits another, even if a device's randomness repeats itself. Masks are uniform words modulo
2^32 that cancel in the sum, or that shares can take away. Any t shares of a secret rebuild it, and
t - 1 tell nothing about it (Shamir 1979). The secret is a polynomial's value at zero, and a share
its value at a point of its own. The polynomial has degree t - 1 over the integers modulo a prime;
its other coefficients are uniform.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from m2fdp.secure_aggregation.messages import KeyRefused, SharesDisagree, TamperedShare
from m2fdp.secure_aggregation.terms import Terms

# Keys and secrets have so many bytes.
KEY_BYTES = 32
COPIED = "shown twice"
_NO_KEY = "of low order, or none"
_FIELD = 2**255 - 19
# The least prime that no secret reaches.
PRIME = 2**256 + 297
SHARE_BYTES = 33
# So many uniform bytes modulo the prime are uniform up to 2^-127.
_DRAWN_BYTES = 48


def public_of(private: X25519PrivateKey) -> bytes:
    """The public key of a private one."""
    return private.public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes, owner: int) -> bytes:
    """What only the two owners can compute, 32 bytes: X25519. A public key of low order, by which
    the result would be zero for all, or written as no honest one is, so that two of it look
    different, is a `KeyRefused`."""
    if int.from_bytes(public, "little") >= _FIELD:
        raise KeyRefused(owner, _NO_KEY)
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise KeyRefused(owner, _NO_KEY) from error


def info(purpose: str, terms: Terms) -> bytes:
    """Purpose, round and group; the lengths keep two different triples from the same bytes."""
    parts = [part.encode() for part in (purpose, terms.label, terms.group.name)]
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def derive(secret: bytes, purpose: str, terms: Terms) -> bytes:
    """A key of 32 bytes for one purpose in one round: HKDF-SHA256."""
    return HKDF(SHA256(), KEY_BYTES, None, info(purpose, terms)).derive(secret)


def seal(key: bytes, sender: int, recipient: int, text: bytes) -> bytes:
    """ChaCha20Poly1305. A key of one round seals one text in each direction, its nonce's ids."""
    return ChaCha20Poly1305(key).encrypt(_nonce(sender, recipient), text, None)


def unseal(key: bytes, sender: int, recipient: int, sealed: bytes) -> bytes:
    """A `TamperedShare` where it is not what the sender sealed for this recipient."""
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(sender, recipient), sealed, None)
    except InvalidTag as error:
        raise TamperedShare(sender, recipient) from error


def _nonce(sender: int, recipient: int) -> bytes:
    return sender.to_bytes(4) + recipient.to_bytes(4) + bytes(4)


def copied(public: Mapping[int, tuple[bytes, ...]]) -> list[int]:
    """The members with a public key that is shown twice; who has copied it can't be told."""
    times = Counter(key for pair in public.values() for key in pair)
    return [member for member, pair in public.items() if any(times[key] > 1 for key in pair)]


def refused_keys(public: Mapping[int, tuple[bytes, ...]]) -> dict[int, str]:
    """By member, why its public keys are refused."""
    # Any private key finds the public ones of low order; this one protects nothing.
    probe = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))
    refused = dict.fromkeys(copied(public), COPIED)
    for member, pair in public.items():
        try:
            for key in pair:
                agree(probe, key, member)
        except KeyRefused as error:
            refused[member] = error.reason
    return refused


def keystream(key: bytes, n_words: int) -> np.ndarray:
    """ChaCha20's words, uint32 (n_words,), from its start. A key serves once."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    words = np.frombuffer(stream.update(bytes(4 * n_words)), dtype="<u4")
    return words.astype(np.uint32, copy=False)


def own_key(seed: bytes, terms: Terms) -> bytes:
    """The key of the mask that a member's own 32 random bytes b make."""
    return derive(seed, "own mask", terms)


def pair_key(private: X25519PrivateKey, public: bytes, owner: int, terms: Terms) -> bytes:
    """The key of the mask that two members share; see `agree`."""
    return derive(agree(private, public, owner), "pair mask", terms)


def add_own_mask(words: np.ndarray, key: bytes) -> None:
    """Add a member's own mask to words uint32 (M,), in place."""
    words += keystream(key, len(words))


def take_own_mask(words: np.ndarray, key: bytes) -> None:
    """Take a member's own mask from words uint32 (M,), in place."""
    words -= keystream(key, len(words))


def add_pair_mask(words: np.ndarray, key: bytes, member: int, other: int) -> None:
    """Add what `member` adds for `other`, in place: the opposite of what `other` adds for it."""
    if member < other:
        words += keystream(key, len(words))
    else:
        words -= keystream(key, len(words))


def split(
    secrets: Sequence[bytes], threshold: int, points: Sequence[int], entropy: Callable[[int], bytes]
) -> list[tuple[bytes, ...]]:
    """For each point, different ones from 1 on, a share of each secret: `SHARE_BYTES` bytes."""

    def polynomial(secret: bytes) -> list[int]:
        """Its coefficients, that of the highest power first."""
        drawn = entropy((threshold - 1) * _DRAWN_BYTES)
        starts = range(0, len(drawn), _DRAWN_BYTES)
        uniform = (int.from_bytes(drawn[at : at + _DRAWN_BYTES]) % PRIME for at in starts)
        return [*uniform, int.from_bytes(secret)]

    def share(coefficients: Sequence[int], point: int) -> bytes:
        value = 0
        for coefficient in coefficients:
            value = (value * point + coefficient) % PRIME
        return value.to_bytes(SHARE_BYTES)

    polynomials = [polynomial(secret) for secret in secrets]
    return [tuple(share(one, point) for one in polynomials) for point in points]


@lru_cache(maxsize=64)  # the same survivors' are asked for by round and secret
def weights_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's: a polynomial of degree below their number is sum w_i p(x_i) at zero."""
    weights = []
    for point in points:
        numerator = denominator = 1
        for other in points:
            if other != point:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - point) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)


def rebuild(shares: Sequence[bytes], weights: Sequence[int]) -> bytes:
    """The secret of t shares at the weights' points: 32 bytes; `SharesDisagree` where none is."""
    pairs = zip(shares, weights, strict=True)
    value = sum(weight * int.from_bytes(share) for share, weight in pairs) % PRIME
    if value >> 8 * KEY_BYTES:
        raise SharesDisagree("shares that are not of one secret")
    return value.to_bytes(KEY_BYTES)


def rebuild_all(held: Mapping[int, Mapping[int, bytes]], threshold: int) -> dict[int, bytes]:
    """Every secret of which somebody holds a share; shares by point, at least t, and by name."""
    points = tuple(sorted(held)[:threshold])
    weights = weights_at_zero(points)
    return {
        name: rebuild([held[point][name] for point in points], weights) for name in held[points[0]]
    }
