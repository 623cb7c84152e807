"""How long models may be, lest rounding them tells of a record; see
`m2fdp.core.privacy.rounding`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


class TooLongError(ArithmeticError):
    """A model is so long that rounding it comes near what one record does to it, or has no length
    at all."""

    def __init__(self, when: str, step_size: float, length: float) -> None:
        super().__init__(when, step_size, length)  # as it is pickled by
        self.when, self.step_size, self.length = when, step_size, length

    def __str__(self) -> str:
        if not math.isfinite(self.length):
            return f"training diverged {self.when}"
        return (
            f"the model is {self.length:.3g} long {self.when}, and rounding moves it by more than "
            "an eighth of what one record does, which epsilon does not count"
        )


def any_length(step_size: float) -> float:
    """The length of models in a run that promises nothing by theirs."""
    return math.inf


def refuse_too_long(length: float, longest: float, step_size: float, when: str) -> None:
    """Refuse to go on with a model that is too long, or whose length is no number.

    Raises:
        TooLongError: it is.
    """
    if longest != math.inf and not length <= longest:
        raise TooLongError(when, step_size, length)


def refuse_longest(
    models: Tensor, longest: float, looked_at: Callable[[], np.ndarray], step_size: float
) -> None:
    """Refuse to begin local steps from models (n, M) one of which is too long.

    Args:
        looked_at: tells which may be looked at, bool (n,): those that noise covers.

    Raises:
        TooLongError: one is.
    """
    if longest != math.inf and (covered := looked_at()).any():
        import torch

        lengths = models[torch.as_tensor(covered, device=models.device)].double().norm(dim=1)
        refuse_too_long(float(lengths.max()), longest, step_size, "after a local aggregation")
