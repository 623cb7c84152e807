"""NumPy's Philox on another device: the same random words, a layer's at once.

Philox (4x64, 10 rounds; Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3") makes
four words of every value of a counter. Products of torch's signed 64-bit integers wrap around, as
the definition asks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

WORDS = 4  # 64-bit ones, of one value of the counter
_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW = 0xFFFFFFFF


def random_words(key: Sequence[int], places: Tensor) -> Tensor:
    """The words int64 (…, 4) of a stream, with a key of two words, at values int64 (…) of the
    counter."""
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
