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
    """A model is so long that float32 rounding could reveal a record, or it has no length."""

    def __init__(self, when: str, step_size: float, length: float) -> None:
        super().__init__(when, step_size, length)  # for pickle
        self.when, self.step_size, self.length = when, step_size, length

    def __str__(self) -> str:
        if not math.isfinite(self.length):
            return f"training diverged {self.when}"
        return (
            f"the model is {self.length:.3g} long {self.when}, and rounding moves it by more than "
            "an eighth of what one record does, which epsilon does not count"
        )


def any_length(step_size: float) -> float:
    """No bound: rounding reveals nothing that the run protects."""
    return math.inf


def refuse_too_long(length: float, longest: float, step_size: float, when: str) -> None:
    """Raise `TooLongError` if a length is above the longest, or no number."""
    if longest != math.inf and not length <= longest:
        raise TooLongError(when, step_size, length)


def refuse_longest(
    models: Tensor, longest: float, looked_at: Callable[[], np.ndarray], step_size: float
) -> None:
    """Raise `TooLongError` if one of the models (n, M) is too long, of those that noise covers:
    `looked_at` gives bool (n,)."""
    if longest != math.inf and (covered := looked_at()).any():
        import torch

        lengths = models[torch.as_tensor(covered, device=models.device)].double().norm(dim=1)
        refuse_too_long(float(lengths.max()), longest, step_size, "after a local aggregation")
