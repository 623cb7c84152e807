"""What rounding to float32 may tell of a record: it comes before noise, and epsilon counts none.

A number is rounded by at most 2^-24 of itself, and so a model by at most 2^-24 of its length. That
is held to an eighth of what one record moves the model by: while training goes on, by models that
follow from noised ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from m2fdp.privacy.calibrated import CalibratedMechanism
from m2fdp.privacy.multiplier import one_line_each

_ROUNDED_BY = 2.0**-24
# How many times less than a record's move rounding has to be.
_FAR_BELOW = 8


@dataclass(frozen=True)
class Rounding:
    """What one record does to a model, beside which rounding has to be small.

    Attributes:
        least_move: the least that it moves one by in a local step, of all positions and rounds;
            infinite where no model is noised.
        in_steps: whether that is in the step size eta, else in the model's own unit.
        taken: how far a model may be taken before it is noised, in the same unit.
    """

    least_move: float
    in_steps: bool
    taken: float = 0.0

    def moved(self, step_size: float) -> float:
        """The least that one record moves a model by in a local step of size eta."""
        return self.least_move * self._unit(step_size)

    def rounded(self, length: float, step_size: float) -> float:
        """The most that a step's rounding moves a model by, which is so long when last noised."""
        return _ROUNDED_BY * (length + self.taken * self._unit(step_size))

    def longest(self, step_size: float) -> float:
        """The length of a model that rounding moves by an eighth of what one record does; not
        above zero where steps are too long by themselves, as those of millions of records."""
        allowed = self.moved(step_size) / (_FAR_BELOW * _ROUNDED_BY)
        return allowed - self.taken * self._unit(step_size)

    def _unit(self, step_size: float) -> float:
        return step_size if self.in_steps else 1.0


def rounding(mechanism: CalibratedMechanism) -> Rounding:
    """What one record does to the models of a run.

    Every step rounds them. Where steps are noised together, each is compared with its part of what
    a record moves the whole by; but where the whole is clipped, what has come before is bounded.

    Devices that send activations noise a gradient, not a model: they are not looked at.
    """
    if not mechanism.private:
        return Rounding(inf, in_steps=False)
    ledger, clipping = mechanism.ledger, mechanism.clipping
    of_step = clipping.record_norm or clipping.batch_norm
    least, most_steps = inf, 1.0
    for position, line in one_line_each(ledger).items():
        if position.splits and position.is_device:
            continue
        for plan in {*ledger.plans}:
            position_then, _ = line.views[plan.network]
            laws = line.laws(position_then, plan)
            releases = sum(count for _, count in laws)
            steps = len(plan.layers) / releases if of_step and releases else 1.0
            moves = [position.unit * law.largest / steps for law, _ in laws]
            least = min([least, *(move for move in moves if 0 < move < inf)])
            most_steps = max(most_steps, steps)
    return Rounding(least, mechanism.noise.unit == "step", (of_step or 0.0) * most_steps)


def condition(rounded: float, moved: float) -> str:
    """What epsilon rests on where rounding comes near a record from the start.

    Args:
        rounded: the most that a step's rounding moves the first model by.
        moved: the least that one record moves a model by in a step.
    """
    return (
        f"rounding to float32, which moves a model by up to {rounded:.2g} a step before it is "
        f"noised, tells nothing of a record, which moves one by as little as {moved:.2g} (longer "
        "steps leave it behind: training.learning_rate, privacy.clipping_norm)"
    )


ENFORCED = (
    "rounding to float32 before noise tells nothing: it moves a model by less than an eighth of "
    "what one record does, or training ends"
)
