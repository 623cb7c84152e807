"""nu, the gap that (P) prices: of the papers' noise, or of the noise that a run draws."""

from dataclasses import dataclass, fields

import numpy as np

from m2fdp.convergence.mean_descent import Landscape, RoundSpread, StepSums, raised


@dataclass(frozen=True)
class History:
    """What finished rounds have settled of a gap: how many they are, the loss that they add, at
    most, and the sum of their eta^t K^t."""

    rounds: int = 0
    raised: float = 0.0
    weight: float = 0.0


# Before the first round.
NOTHING = History()


@dataclass(frozen=True, eq=False)
class PapersGap:
    """nu of J eq. 28, (k, a, b), which no finished round changes."""

    values: np.ndarray

    def over(self, history: History, remaining: int) -> np.ndarray:
        return self.values

    def after(self, history: History, at: tuple[int, int, int], local_steps: int) -> History:
        return History(history.rounds + 1)


@dataclass(frozen=True, eq=False)
class MechanismGap:
    """The bound of `m2fdp.convergence.mean_descent` on the mean of ||grad F||^2 over a whole run:
    what finished rounds have settled, and equal rounds from now on.

    Attributes:
        spread: what a round brings for every K, s_T and s_U, (k, a, b).
        local_steps: the values of K, (k,).
        step_parameter: gamma, of eta^t = gamma / sqrt(t + 1).
        sums: sums of step sizes over gamma, up to round T, the last that there may be.
    """

    landscape: Landscape
    spread: RoundSpread
    local_steps: np.ndarray
    step_parameter: float
    sums: StepSums

    def over(self, history: History, remaining: int) -> np.ndarray:
        """nu for every K, s_T and s_U, (k, a, b), for all rounds to come, of tau^t local steps;
        infinite where some would remain after the last one."""
        rounds = -(-remaining // self.local_steps)
        last = history.rounds + rounds
        in_time = last <= self.sums.rounds
        sums = self.sums.over(history.rounds, np.minimum(last, self.sums.rounds))
        # The last round may be a short one: all count a little less.
        sums = sums * (remaining / (rounds * self.local_steps))
        first, second, third = (
            gamma_power * power[:, None, None]
            for gamma_power, power in zip(self._powers, sums, strict=True)
        )
        lost = self.landscape.loss_drop + history.raised
        total = lost + raised(self.landscape, self.spread, second, third)
        weight = history.weight + first * self.local_steps[:, None, None]
        return np.where(in_time[:, None, None], 2 * total / weight, np.inf)

    def after(self, history: History, at: tuple[int, int, int], local_steps: int) -> History:
        """What is settled after one more round of K^t local steps, by the place of its choice."""
        sums = self.sums.over(history.rounds, np.array([history.rounds + 1]))[:, 0]
        of_one = [power * float(sum_) for power, sum_ in zip(self._powers, sums, strict=True)]
        spread = RoundSpread(*(getattr(self.spread, part.name)[at] for part in fields(RoundSpread)))
        return History(
            history.rounds + 1,
            history.raised + float(raised(self.landscape, spread, of_one[1], of_one[2])),
            history.weight + of_one[0] * local_steps,
        )

    @property
    def _powers(self) -> tuple[float, float, float]:
        gamma = self.step_parameter
        return gamma, gamma**2, gamma**3


# nu as a function of K and participation.
Gap = PapersGap | MechanismGap
