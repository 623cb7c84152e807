"""What an attack is handed: a message as an observer reads it, and nothing of the state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Message:
    """What an observer reads of some devices at one moment, beside what everybody knows.

    Attributes:
        sees: what it is, in words.
        devices: int64 (n,), whose updates are in it and unknown to the observer.
        shares: float64 (n,), what each of their updates counts with in it.
        start: (M,), the model that updates are counted from.
        update: (M,), the sum of shares times updates, with all noise that is in it.
        steps: local steps that each device has taken since.
        step_size: eta.
    """

    sees: str
    devices: np.ndarray
    shares: np.ndarray
    start: Tensor
    update: Tensor
    steps: int
    step_size: float

    @property
    def gradient(self) -> Tensor:
        """(M,), what the devices' steps went along, in their mean: over the sum of shares."""
        return self.update / (-self.step_size * self.steps * float(self.shares.sum()))

    @property
    def parts(self) -> np.ndarray:
        """float64 (n,), the shares over their sum."""
        return self.shares / self.shares.sum()
