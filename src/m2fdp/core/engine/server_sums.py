"""The sum that a server makes of its children's messages; the engine calls it for a whole layer."""

from __future__ import annotations

import torch
from torch import Tensor


def weighed_sum(
    sums: Tensor, messages: Tensor, weights: Tensor | None = None, parents: Tensor | None = None
) -> None:
    """Add the weighed messages of children to their parents' sums (J eqs 8, 9, 13), in place.

    They are added one after the other, so calls with single messages, in order, give equal bytes.

    Args:
        sums: (N, M), one for each parent; (1, M) of a server alone.
        messages: (n, M), in the tree's order, weighed in place to save memory.
        weights: (n, 1), the messages' factors; None = they are weighed already.
        parents: int64 (n,), the sum of each message; None = the first.
    """
    if weights is not None:
        messages.mul_(weights)
    if parents is None:
        parents = messages.new_zeros(len(messages), dtype=torch.int64)
    sums.index_add_(0, parents, messages)
