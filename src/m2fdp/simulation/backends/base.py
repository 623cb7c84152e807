"""The interface of backends, and the one formula that they share."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from m2fdp.simulation.records import Minibatches


class Backend(Protocol):
    """Sums of record gradients for a range of learners.

    `group` is the number of learners whose arithmetic is done together: a range starts at a
    multiple of it, so that no result depends on how learners are split.
    """

    group: int

    def add_gradients(
        self,
        into: Tensor,
        alpha: float,
        models: Tensor,
        batches: Minibatches,
        clipping_norm: float | None,
        by_class: bool = False,
    ) -> None:
        """Add to each row of `into` alpha times the learner's sum, in place.

        Args:
            into: (n, M); may be `models` itself, which makes the addition a gradient step.
            models: (n, M), where the gradients are taken.
            batches: of the same n learners.
            clipping_norm: each record's gradient is clipped to it before it is weighted, unless
                it is None. A gradient without a finite norm, of a record with infinite features,
                say, counts as zero: else it would have no bound.
            by_class: clip the part of each of C classes to `clipping_norm` / sqrt(C) instead,
                for linear models.
        """


def clip_factor(norms: Tensor, clipping_norm: float) -> Tensor:
    """min(1, clipping norm / norm), and 1 for a zero norm."""
    return (clipping_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)


def unbounded(norms: Tensor, clipping_norm: float) -> Tensor | None:
    """Which gradients no clip factor can bound; None where there is none, as there should be.

    Their norm is not finite, or so large that the factor has hardly a digit left. They count as
    zero, but not by a factor of 0: that leaves what is not finite as it is.
    """
    largest = clipping_norm / torch.finfo(norms.dtype).tiny
    if float(norms.sum()) <= largest:
        return None
    return ~((norms <= largest) & norms.isfinite())
