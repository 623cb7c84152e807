"""What rounding to float32 may tell of a record: it comes before noise, and epsilon counts none."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from m2fdp.config import PrivacyConfig
from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.mechanisms import get_mechanism
from m2fdp.privacy.multiplier import largest_shift, one_line_each

# What a number of size one is rounded by at most.
_ROUNDED_BY = 2.0**-24
# How many times less than a record's move rounding should be.
_FAR_BELOW = 8


@dataclass(frozen=True)
class Rounding:
    """What rounding to float32, before noise, may do to a model, beside what a record does.

    Attributes:
        error: 2^-24 sqrt(M), which it moves M numbers of size one by at most.
        least_move: the least that one record moves a model by, of all positions and rounds.
    """

    error: float
    least_move: float

    @property
    def conditions(self) -> list[str]:
        """What epsilon, which counts no rounding, rests on where it is not far below a record."""
        if self.error * _FAR_BELOW <= self.least_move:
            return []
        return [
            f"rounding to float32, which moves a model by up to {self.error:.2g} before it is "
            f"noised, tells nothing of a record, which moves one by {self.least_move:.2g} or more "
            "(longer steps leave it behind: training.learning_rate, privacy.clipping_norm)"
        ]

    @property
    def assumptions(self) -> list[str]:
        """The same where it is; nothing where no model is noised."""
        if self.conditions or self.least_move == inf:
            return []
        return [
            "rounding to float32 before noise tells nothing: it moves a model whose numbers are of "
            f"size one by at most {self.error:.2g}, and a record moves one by "
            f"{self.least_move:.2g} or more"
        ]


def rounding(mechanism: CalibratedMechanism, n_parameters: int, privacy: PrivacyConfig) -> Rounding:
    """What rounding does to a run's models.

    Devices that send activations noise a gradient, not a model: they are not looked at.

    Args:
        n_parameters: M.
    """
    ledger = mechanism.ledger
    # Shifts of steps are those of gradients.
    of_steps = get_mechanism(privacy.mechanism).noises_every_step
    shortest = min((plan.step_size for plan in ledger.plans), default=1.0) if of_steps else 1.0
    moves = [
        position.unit * largest_shift(line, ledger, network) * shortest
        for position, line in one_line_each(ledger).items()
        if not (position.splits and position.is_device)
        for network in range(len(line.views))
    ]
    least = min((move for move in moves if 0 < move < inf), default=inf)
    return Rounding(n_parameters**0.5 * _ROUNDED_BY, least)
