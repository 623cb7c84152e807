"""The interface of backends."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.privacy.mechanisms import Clipping


class Backend(Protocol):
    """Sums of record gradients for a range of learners.

    `group` is the number of learners whose arithmetic is done together: a range starts at a
    multiple of it, so that no result depends on how learners are split.
    """

    @property
    def group(self) -> int:
        """See above."""

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        """Add to each row of `target` alpha times the learner's sum, in place.

        Args:
            target: (n, M); may be `models` itself, which makes the addition a gradient step.
            models: (n, M), where the gradients are taken.
            batches: records of the same n learners.
            clip: its `record_norm`, unless None, is what each record's gradient is clipped to
                before it is weighted. A gradient without a finite norm, of a record with infinite
                features, say, counts as zero: else it would have no bound.
        """
