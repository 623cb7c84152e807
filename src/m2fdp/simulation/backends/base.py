"""The interface of backends."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from m2fdp.simulation.minibatches import Minibatches


class Backend(Protocol):
    """Sums of record gradients for a range of learners.

    `group` is the number of learners whose arithmetic is done together: a range starts at a
    multiple of it, so that no result depends on how learners are split.
    """

    @property
    def group(self) -> int:
        """See above."""

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
            by_class: clip the part of each of C classes to `clipping_norm` / sqrt(C) instead; of
                linear models only, as `build_executor` sees to.
        """
