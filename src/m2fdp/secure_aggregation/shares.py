"""Secrets in shares (Shamir 1979): any t of them rebuild it, t - 1 tell nothing about it.

A secret of 32 bytes is the value at zero of a polynomial of degree t - 1 over the integers modulo
a prime, all other coefficients uniform; a share is the value at a point of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from m2fdp.secure_aggregation.failures import SharesDisagree

# The least prime that no secret of 32 bytes reaches.
PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
# So many uniform bytes modulo the prime are uniform up to 2^-127.
_DRAWN_BYTES = 48


def split(
    secrets: Sequence[bytes], threshold: int, points: Sequence[int], entropy: Callable[[int], bytes]
) -> list[tuple[bytes, ...]]:
    """For each point, different ones from 1 on, a share of each secret: `SHARE_BYTES` bytes."""
    polynomials = [_polynomial(secret, threshold, entropy) for secret in secrets]
    return [
        tuple(_value(polynomial, point).to_bytes(SHARE_BYTES) for polynomial in polynomials)
        for point in points
    ]


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
    if value >> 8 * SECRET_BYTES:
        raise SharesDisagree("shares that are not of one secret")
    return value.to_bytes(SECRET_BYTES)


def rebuild_all(held: Mapping[int, Mapping[int, bytes]], threshold: int) -> dict[int, bytes]:
    """Every secret of which somebody holds a share; shares by point, at least t, and by name."""
    points = tuple(sorted(held)[:threshold])
    weights = weights_at_zero(points)
    return {
        name: rebuild([held[point][name] for point in points], weights) for name in held[points[0]]
    }


def _polynomial(secret: bytes, threshold: int, entropy: Callable[[int], bytes]) -> list[int]:
    """Its coefficients, that of the highest power first."""
    drawn = entropy((threshold - 1) * _DRAWN_BYTES)
    coefficients = [
        int.from_bytes(drawn[start : start + _DRAWN_BYTES]) % PRIME
        for start in range(0, len(drawn), _DRAWN_BYTES)
    ]
    return [*coefficients, int.from_bytes(secret)]


def _value(polynomial: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in polynomial:
        value = (value * point + coefficient) % PRIME
    return value
