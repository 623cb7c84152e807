"""What rounding to float32 may tell of a record: it comes before noise, and epsilon counts none.

A number is rounded by at most 2^-24 of itself, and so a model by at most 2^-24 of its length. That
is held to an eighth of what one record moves the model by: while training goes on, by models that
follow from noised ones.
"""

from dataclasses import dataclass
from math import inf, prod

from m2fdp.core.privacy.calibration import CalibratedMechanism, one_line_each
from m2fdp.core.privacy.taint import Window, windows

_ROUNDED_BY = 2.0**-24
# How many times less than a record's move rounding has to be.
_FAR_BELOW = 8


@dataclass(frozen=True)
class Rounding:
    """What one record does to a model, beside which rounding has to be small.

    Attributes:
        least_move: the least that a record moves a model by for each rounding of it; infinite
            where no model is noised.
        in_steps: whether the unit is the step size eta, else the model's own.
        taken: how far steps may take a model before it is noised.
    """

    least_move: float
    in_steps: bool
    taken: float = 0.0

    def moved(self, step_size: float) -> float:
        """The least that one record moves a model by for each rounding, in steps of size eta."""
        return self.least_move * self._unit(step_size)

    def rounded(self, length: float, step_size: float) -> float:
        """The most that one rounding moves a model of this length, when last noised."""
        return _ROUNDED_BY * (length + self.taken * self._unit(step_size))

    def longest(self, step_size: float) -> float:
        """The length of a model that rounding moves by an eighth of what one record does; negative
        where the steps alone are too long."""
        allowed = self.moved(step_size) / (_FAR_BELOW * _ROUNDED_BY)
        return allowed - self.taken * self._unit(step_size)

    def _unit(self, step_size: float) -> float:
        return step_size if self.in_steps else 1.0


def rounding(mechanism: CalibratedMechanism) -> Rounding:
    """Of the models of a run, less those that devices split. A clipped update or model bounds all
    roundings before it."""
    if not mechanism.private:
        return Rounding(inf, in_steps=False)
    ledger, clipping = mechanism.ledger, mechanism.clipping
    together = clipping.batch_norm
    least, steps = inf, 1
    for line in one_line_each(ledger).values():
        for plan in {*ledger.plans}:
            position, _ = line.views[plan.network]
            if position.splits and position.is_device:
                continue
            roundings = 1.0
            if together:
                of_round = windows(plan, position.head_layer)
                roundings = max(_roundings(window, prod(position.shares)) for window in of_round)
                steps = max(steps, *(len(window.syncs) for window in of_round))
            for law, _ in line.laws(position, plan):
                move = position.unit * law.largest / roundings
                least = move if 0 < move < least else least
    norm = together or clipping.record_norm or 0.0
    return Rounding(least, mechanism.noise.unit == "step", norm * steps)


def _roundings(window: Window, share: float) -> float:
    """How often all that a record may have changed is rounded in a window, as if at once. Until an
    un-noised mean, that is the device's own model, with its share in the release."""
    steps = len(window.syncs)
    means = [step for step, layer in enumerate(window.syncs, start=1) if layer is not None]
    alone = means[0] if means else steps
    return share * alone + (steps - alone) + len(means) + (share < 1)


def condition(rounded: float, moved: float) -> str:
    """What epsilon rests on where one rounding moves the first model by so much."""
    return (
        f"rounding to float32, which moves a model by up to {rounded:.2g} each time before it "
        f"is noised, tells nothing of a record, which moves one by as little as {moved:.2g} "
        "(longer steps leave it behind: training.learning_rate, privacy.clipping_norm)"
    )


ENFORCED = (
    "rounding to float32 before noise tells nothing: it moves a model by less than an eighth of "
    "what one record does, or training ends"
)
