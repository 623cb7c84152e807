"""Random streams: every draw comes from a generator keyed by what it is for.

A key is (seed, purpose, indices…), such as (3, "minibatch", round, step). So a result depends
on no chunking, worker count or order of evaluation, and two algorithms with one seed see the
same minibatches.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import torch


def _digest(seed: int, purpose: str, indices: tuple[int, ...], size: int) -> int:
    text = f"{seed}|{purpose}|{'|'.join(map(str, indices))}"
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "little")


def generator(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A NumPy generator (Philox) for one purpose and place."""
    return np.random.Generator(np.random.Philox(key=_digest(seed, purpose, indices, 16)))


def torch_generator(
    seed: int, purpose: str, *indices: int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A torch generator for one purpose and place, on the device whose draws it makes."""
    result = torch.Generator(device=device)
    # manual_seed takes a signed 64-bit number.
    return result.manual_seed(_digest(seed, purpose, indices, 8) >> 1)
