"""The interface of backends."""

from typing import Protocol

from torch import Tensor

from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.privacy.mechanisms import Clipping


class Backend(Protocol):
    """Sums of record gradients for a range of learners, which starts at a multiple of `group`."""

    @property
    def group(self) -> int:
        """The number of learners that are computed together."""

    def add_gradients(
        self, target: Tensor, alpha: float, models: Tensor, batches: Minibatches, clip: Clipping
    ) -> None:
        """Add to each row of `target` alpha times the learner's sum, in place.

        Args:
            target: (n, M); `models` itself makes the addition a gradient step.
            models: (n, M), where the gradients are taken.
            batches: records of the same n learners.
            clip: bounds, of which `record_norm` holds for each record's gradient before its weight.
                A gradient without a finite norm counts as zero: nothing else bounds it.
        """
