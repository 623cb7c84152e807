"""From a privacy configuration to a mechanism: what it clips, and how much noise it adds.

With `calibration: multiplier` (H Alg. 1 with z in place of a target) every adder draws noise of z
times its message's sensitivity to one record, or one device, in one release. The ledger says what
that is worth. Its nominal epsilon is what one adder's noise would be worth by itself, against
somebody who sees its every release and is never told who takes part.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import expm1, inf, log, log1p
from typing import Any

import numpy as np

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.accounting import Composition, ShiftLaw, epsilon, least_noise
from m2fdp.core.privacy.ledger import Ledger, build_ledger, joint_ledger, open_ledger
from m2fdp.core.privacy.mechanisms import (
    Clipping,
    Mechanism,
    Protection,
    get_mechanism,
    lock_step_of,
    silence,
    step_alone,
)
from m2fdp.core.privacy.positions import Position, position_name
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import EVERY_ROUND, Release
from m2fdp.core.privacy.sight import KINDS
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import OPEN, Network, heads_of, no_noise

# For layer l = 0…L, float64 (N_l,): standard deviations, over eta; of models that are bounded
# themselves, (N_l, 2), in the model's unit: at a global and at a local aggregation.
Deviations = list[np.ndarray]
# Noise that is so little short of its target is short by rounding alone.
_ROUNDING = 1e-2


@dataclass(frozen=True, eq=False)
class CalibratedMechanism(Protection):
    """Everything the privacy configuration decides about a run, with what every observer learns."""

    ledger: Ledger

    def epsilon(self, rounds: int) -> float:
        """See `Ledger.verified`."""
        return self.ledger.verified(rounds)

    def affordable_rounds(self, budget: float | None) -> int:
        """How many of the planned rounds stay within a budget; all of them without one."""
        planned = len(self.ledger.plans)
        if budget is None or not self.private or self.epsilon(planned) <= budget:
            return planned
        return bisect_right(range(planned), budget, lo=1, key=self.epsilon) - 1


def check_delta(
    delta: float, shard_sizes: np.ndarray, rates: np.ndarray, draws: int, unit: str = "steps"
) -> None:
    """Refuse a delta that pays for what it is meant to exclude.

    At 1/D a mechanism that publishes one record in clear would pass. At the chance that a record is
    ever drawn, one that publishes all drawn records would.

    Args:
        shard_sizes: D_j, (N_L,).
        rates: q_j, (N_L,).
        draws: how often the whole run draws records; `unit` says what draws them.
    """
    largest, rarest = int(shard_sizes.max()), float(rates.min())
    chance = 1.0 if rarest == 1 else -expm1(draws * log1p(-rarest))
    problem = (
        f"{chance:.3g}, the chance that {draws} {unit} at rate {rarest:.3g} ever "
        "draw a record: else what is drawn could go out in clear and the promise would hold"
    )
    if not delta < 1 / largest:
        problem = f"1/{largest} = {1 / largest:.3g}, one over the records of the largest shard"
    if not (delta < 1 / largest and delta < chance):
        raise InputError("privacy.delta", delta, f"must be below {problem}")


def no_privacy(
    network: Network, plans: Sequence[RoundPlan], privacy: PrivacyConfig, threat: ThreatConfig
) -> CalibratedMechanism:
    """The configured mechanism's local step without clipping and noise."""
    single = step_alone(network)
    divisor = get_mechanism(privacy.mechanism).clipping(privacy).divide_by
    ledger = open_ledger(network, plans, privacy, threat)
    return CalibratedMechanism(Clipping(divisor), single, silence(network, single), False, ledger)


def build_mechanism(premises: Premises) -> CalibratedMechanism:
    """The configured mechanism for one network."""
    (mechanism,) = build_mechanisms([premises])
    return mechanism


def build_mechanisms(
    premises: Sequence[Premises], as_drawn: Callable[[Ledger], Ledger] = lambda ledger: ledger
) -> tuple[CalibratedMechanism, ...]:
    """The mechanism of each network of a run; they share one ledger and together meet the target.

    Args:
        premises: one for each network; they differ in who takes part only.
        as_drawn: adds to a ledger what the run has drawn already, and what its rules make of noise.

    Raises:
        InputError: the mechanism is not defined for this, or a distrusted observer rules it out.
    """
    privacy = premises[0].privacy
    mechanism = get_mechanism(privacy.mechanism)
    for each in premises:
        mechanism.check(privacy, each.network, each.plans)
    units = [mechanism.units(each) * moved_by_joining(each.network) for each in premises]

    def ledger_over(premises: Sequence[Premises], noises: Sequence[Deviations]) -> Ledger:
        return as_drawn(joint_ledger(list(map(build_ledger, premises, noises, units))))

    ledger_of = partial(ledger_over, premises)
    if privacy.calibration == "paper":
        noises = list(map(mechanism.paper_noise, premises))
        ledger = ledger_of(noises)
    elif privacy.noise_multiplier is not None:
        silent, noises = ledger_of(_silence(premises)), []
        for number, (each, unit) in enumerate(zip(premises, units, strict=True)):
            lines = one_line_each(silent).items()
            shifts = _by_device({at: largest_shift(line, silent, number) for at, line in lines})
            protecting = privacy.noise_multiplier * (shifts * unit)
            noises.append(mechanism.in_parts(each, protecting, silent.distrusted))
        ledger = ledger_of(noises)
    else:
        in_clear = list(map(_as_if_read_alone, premises))
        noises, ledger = _least_noise(mechanism, in_clear, units, partial(ledger_over, in_clear))
        if premises[0].network.sums != in_clear[0].network.sums:
            ledger = ledger_of(noises)
            if not ledger.verified(len(ledger.plans)) <= privacy.epsilon:  # the missing add none
                noises, ledger = _least_noise(mechanism, premises, units, ledger_of)
    result = []
    for each, deviations, unit in zip(premises, noises, units, strict=True):
        lock_step = lock_step_of(mechanism, each.network, each.plans)
        noise = mechanism.noise(each, lock_step, deviations)
        for amended in brought("noises"):
            noise = amended(each, lock_step, noise, unit)
        if not all(np.isfinite(drawn).all() for drawn in noise.every):
            problem = "draws noise whose deviation is no finite number"
            raise InputError("privacy.mechanism", privacy.mechanism, problem)
        clipping = mechanism.clipping(privacy)
        result.append(CalibratedMechanism(clipping, lock_step, noise, True, ledger))
    return tuple(result)


def _silence(premises: Sequence[Premises]) -> list[Deviations]:
    return [list(no_noise(each.network.tree)) for each in premises]


def _as_if_read_alone(premises: Premises) -> Premises:
    """Premises in which every message is read: noise that is not shared is enough by itself."""
    sums = premises.network.sums
    if sums.shared or not sums.layers & set(premises.head_layers.tolist()):
        return premises
    return replace(premises, network=replace(premises.network, sums=OPEN))


def moved_by_joining(network: Network) -> np.ndarray:
    """How many times its update's weight each device may move its head's message by, as it joins or
    not: float64 (N_L,).

    Under `clipped` a device changes the divisor of its server's sum, and so the others' weights. It
    moves the sum by at most `2 S w / (q W_min + w)`, below twice its own `S w / (q W_min)` (Lemma 1
    of McMahan et al. 2018). A device that is its own head sends its update as it is.
    """
    tree, participation = network.tree, network.participation
    if participation is None or participation.least_weight is None:
        return np.ones(tree.n_devices)
    return np.where(heads_of(network)[:, 0] < tree.depth, 2.0, 1.0)


def _least_noise(
    mechanism: Mechanism,
    premises: Sequence[Premises],
    units: Sequence[np.ndarray],
    ledger_of: Callable[[Sequence[Deviations]], Ledger],
) -> tuple[list[Deviations], Ledger]:
    """The least noise for which every distrusted observer stays within the target.

    First each node gets its part of its full noise (`Mechanism.in_parts`). Then one factor scales
    all noises: below 1 where nobody distrusted sees every release of a head, above 1 where parts
    are too small for what somebody sees. Heads are the same nodes in all networks.
    """
    privacy = premises[0].privacy
    laws = ledger_of(_silence(premises))
    needed = _needed_where_nobody_joins(laws, privacy, premises[0].heads)
    pairs = zip(premises, units, strict=True)
    noises = [mechanism.in_parts(each, needed * unit, laws.distrusted) for each, unit in pairs]
    ledger = ledger_of(noises)
    rounds = len(ledger.plans)
    shown, verified = _shown_to_distrusted(ledger, privacy), ledger.verified(rounds)
    if 0.99 * privacy.epsilon < verified <= privacy.epsilon or not any(shown):
        return noises, ledger

    def times(log_factor: float) -> list[Deviations]:
        return [[scale * np.exp(log_factor) for scale in noise] for noise in noises]

    def overspend(log_factor: float) -> float:
        verified = ledger_of(times(log_factor)).verified(rounds)
        return log(max(verified, 1e-12) / privacy.epsilon)

    factor = 0.0
    if verified <= privacy.epsilon or log(verified / privacy.epsilon) > _ROUNDING:
        from scipy.optimize import brentq  # a quarter of a second, and few get here

        low, high = (-0.1, 0.0) if verified <= privacy.epsilon else (0.0, 0.5)
        while overspend(low) <= 0:
            low -= 0.5
        while high > 0 and overspend(high) > 0:
            low, high = high, high + 0.5
        factor = brentq(overspend, low, high, xtol=1e-4)
    # What is returned is what was verified: the ledger's rounding may ask for a hair more.
    step = 2.5e-4
    while not overspend(factor) <= 0:
        factor, step = factor + step, 2 * step
    return times(factor), ledger_of(times(factor))


def _shown_to_distrusted(ledger: Ledger, privacy: PrivacyConfig) -> list[float]:
    """The largest shift of every law that a distrusted observer is shown, over the noise; refuses
    what is shown in clear."""
    result: list[float] = []
    for line in (line for line in ledger.lines if line.kind in ledger.distrusted):
        result += [law.largest for law, _ in ledger.composition(line, len(ledger.plans))]
        if inf in result:
            remedy = "a network without trusted servers"
            if KINDS[line.kind].reads_local_broadcasts:
                remedy = "privacy.mechanism: gradient"
            raise InputError(
                "privacy.epsilon",
                privacy.epsilon,
                f"can't be met for {line.observer} (threat: {line.kind}), who see {line.sees} of "
                f"devices {position_name(line.position)}; trust them, or use {remedy}",
            )
    return result


def _needed_where_nobody_joins(
    laws: Ledger, privacy: PrivacyConfig, heads: np.ndarray
) -> np.ndarray:
    """`_needed_by_device`, and for a head without any device that ever joins the noise that it
    would need if they joined the first round: silence would show that nobody is there.

    Args:
        heads: see `Premises.heads`.
    """
    needed = _needed_by_device(laws, privacy)
    _, head_of = np.unique(heads, axis=0, return_inverse=True)
    empty = np.bincount(head_of, needed)[head_of] == 0
    if not empty.any():
        return needed
    undrawn = (replace(line, account=line.account.undrawn()) for line in laws.lines)
    first_round = replace(laws, lines=tuple(undrawn), plans=laws.plans[:1])
    return np.where(empty, _needed_by_device(first_round, privacy), needed)


def _needed_by_device(laws: Ledger, privacy: PrivacyConfig) -> np.ndarray:
    """The noise, in the unit of its law, that meets the target for a device's records against
    somebody who sees every release of its head: float64 (N_L,). The ledger's noises play no part.
    """

    def asks_more(line: Release) -> tuple[bool, ...]:
        return _of_alike_rounds(line), line.kind in laws.distrusted, not line.joins_unseen

    result = {}
    for position, line in one_line_each(laws, asks_more).items():
        others = tuple((other, 1.0) for other, _ in line.elsewhere)
        account = line.account if line.account.by_laws else EVERY_ROUND
        at_one = replace(line, deviation=1.0, elsewhere=others, account=account)
        composition, unit = laws.composition(at_one, len(laws.plans)), 1.0
        if position.joins is not None:  # many weights, one law, in units of its largest shift
            unit = max((law.largest for law, _ in composition), default=0.0) or 1.0
            composition = tuple(
                (replace(law, shifts=tuple(shift / unit for shift in law.shifts)), count)
                for law, count in composition
            )
        target = privacy.epsilon - line.account.spent
        least = least_noise(composition, target, privacy.delta, privacy.adjacency)
        result[position] = unit * least
    return _by_device(result)


def _by_device(values: Mapping[Position, float]) -> np.ndarray:
    """The value of each device's position: float64 (N_L,)."""
    result = np.zeros(sum(len(position.members) for position in values))
    for position, value in values.items():
        result[list(position.members)] = value
    return result


def _of_alike_rounds(line: Release) -> bool:
    return not line.account.noises


def one_line_each(
    ledger: Ledger, rather: Callable[[Release], Any] = _of_alike_rounds
) -> dict[Position, Release]:
    """Each position of a ledger, with the last of its lines for which `rather` is largest."""
    return {line.position: line for line in sorted(ledger.lines, key=rather)}


def largest_shift(line: Release, ledger: Ledger, network: int) -> float:
    """The most that a position's records move their head's message by, in the unit of their law."""
    position, _ = line.views[network]
    plans = {plan for plan in ledger.plans if plan.network == network}
    shifts = (law.largest for plan in plans for law, _ in line.laws(position, plan))
    return max(shifts, default=0.0)


def nominal_epsilon(ledger: Ledger, rounds: int, privacy: PrivacyConfig) -> float:
    """The epsilon that a run is said to have: its target, or one adder's noise by itself."""
    multiplier = privacy.noise_multiplier
    if multiplier is None:
        return privacy.epsilon
    lines = one_line_each(ledger).values()
    compositions = {_over_one_noise(line, ledger, rounds, multiplier) for line in lines}
    return max(epsilon(each, ledger.delta, ledger.adjacency) for each in compositions)


def _over_one_noise(line: Release, ledger: Ledger, rounds: int, multiplier: float) -> Composition:
    """A position's releases, each over so many times the most that any of its kind moves."""
    deviations = [multiplier * largest_shift(line, ledger, i) for i in range(len(line.views))]
    sums, past = Counter[ShiftLaw](), ledger.past(rounds)
    for plan in ledger.plans[:rounds]:
        position, _ = line.views[plan.network]
        for law, count in line.account.untold(line.laws(position, plan), position, past):
            sums[law.scaled(1.0 / deviations[plan.network])] += count
    return tuple(sums.items())
