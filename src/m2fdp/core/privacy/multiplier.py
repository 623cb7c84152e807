"""`calibration: multiplier`: noise as a multiple of the sensitivity, and its nominal epsilon.

Every adder draws noise of z times the most that one record, or one device, moves its message by in
one release: H Alg. 1 with z in place of a target. The ledger says what that is worth.
H's nominal epsilon is what one adder's noise would be worth by itself, against somebody who sees
its every release and is never told who takes part.
"""

from collections import Counter

import numpy as np

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.privacy.accounting import Composition, ShiftLaw, epsilon
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.releases import Release


def largest_shifts(ledger: Ledger, network: int) -> np.ndarray:
    """The most that each device's records move its head's message by in one of the run's networks,
    in the unit of their law: float64 (N_L,)."""
    lines = one_line_each(ledger)
    result = np.zeros(sum(len(position.members) for position in lines))
    for position, line in lines.items():
        result[list(position.members)] = largest_shift(line, ledger, network)
    return result


def nominal_epsilon(ledger: Ledger, rounds: int, privacy: PrivacyConfig) -> float:
    """The epsilon that a run is said to have after some rounds: its target, or what one adder's
    noise is worth by itself."""
    if privacy.noise_multiplier is None:
        return privacy.epsilon
    compositions = {
        over_one_noise(line, ledger, rounds, privacy.noise_multiplier)
        for line in one_line_each(ledger).values()
    }
    return max(epsilon(each, ledger.delta, ledger.adjacency) for each in compositions)


def over_one_noise(line: Release, ledger: Ledger, rounds: int, multiplier: float) -> Composition:
    """A position's releases, each over so many times the most that any of its kind moves."""
    deviations = [multiplier * largest_shift(line, ledger, i) for i in range(len(line.views))]
    sums, past = Counter[ShiftLaw](), ledger.past(rounds)
    for plan in ledger.plans[:rounds]:
        position, _ = line.views[plan.network]
        laws = line.account.untold(line.laws(position, plan), position, past)
        for law, count in laws:
            sums[law.scaled(1.0 / deviations[plan.network])] += count
    return tuple(sums.items())


def largest_shift(line: Release, ledger: Ledger, network: int) -> float:
    """The most that a position's records move their head's message by, in the unit of their law."""
    position, _ = line.views[network]
    plans = {plan for plan in ledger.plans if plan.network == network}
    shifts = (law.largest for plan in plans for law, _ in line.laws(position, plan))
    return max(shifts, default=0.0)


def one_line_each(ledger: Ledger) -> dict[Position, Release]:
    """Each position of a ledger, with one of its lines, of which all rounds are alike."""
    result: dict[Position, Release] = {}
    for line in ledger.lines:
        if line.position not in result or not line.account.noises:
            result[line.position] = line
    return result
