"""What a server does with the messages of its children.

A pure function of values: an engine calls it for all servers of a layer at once, a server for
itself.
"""

from __future__ import annotations

import torch
from torch import Tensor


def weighed_sum(
    sums: Tensor, messages: Tensor, weights: Tensor | None = None, parents: Tensor | None = None
) -> None:
    """Add the weighed messages of children to their parents' sums (J eqs 8, 9, 13), in place.

    They are added one after the other: the sum of all is, to the bit, what it is if each is added
    by itself as it comes, in that order.

    Args:
        sums: (N, M), one for each parent; (1, M) of a server alone.
        messages: (n, M), in the tree's order; they are weighed in place, since fresh memory would
            cost more than the sums.
        weights: (n, 1), what each counts with; None = they are weighed already.
        parents: int64 (n,), the sum that each is added to; None = the first.
    """
    if weights is not None:
        messages.mul_(weights)
    if parents is None:
        parents = messages.new_zeros(len(messages), dtype=torch.int64)
    sums.index_add_(0, parents, messages)
