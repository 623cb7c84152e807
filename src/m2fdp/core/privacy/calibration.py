"""From a privacy configuration to a mechanism: what it clips, and how much noise it adds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import expm1, inf, log, log1p

import numpy as np

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.accounting import Composition, least_noise
from m2fdp.core.privacy.calibrated import CalibratedMechanism
from m2fdp.core.privacy.ledger import Ledger, build_ledger, joint_ledger, open_ledger
from m2fdp.core.privacy.mechanisms import (
    Clipping,
    Mechanism,
    get_mechanism,
    lock_step_of,
    silence,
    step_alone,
)
from m2fdp.core.privacy.multiplier import largest_shifts
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


def check_delta(
    delta: float, shard_sizes: np.ndarray, rates: np.ndarray, draws: int, unit: str = "steps"
) -> None:
    """Delta must not pay for what it is meant to exclude.

    At 1/D a mechanism that publishes one record in clear would pass. At the chance that a record is
    ever drawn, one that publishes all drawn records would.

    Args:
        shard_sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), the chances q_j that a local step uses a record.
        draws: how often the whole run draws records.
        unit: what draws them, in words.

    Raises:
        InputError: delta is not below both.
    """
    largest = int(shard_sizes.max())
    if not delta < 1 / largest:
        bound = f"1/{largest} = {1 / largest:.3g}, one over the records of the largest shard"
        raise InputError("privacy.delta", delta, f"must be below {bound}")
    rarest = float(rates.min())
    chance = 1.0 if rarest == 1 else -expm1(draws * log1p(-rarest))
    if not delta < chance:
        raise InputError(
            "privacy.delta",
            delta,
            f"must be below {chance:.3g}, the chance that {draws} {unit} at rate {rarest:.3g} ever "
            "draw a record: else what is drawn could go out in clear and the promise would hold",
        )


def no_privacy(
    network: Network, plans: Sequence[RoundPlan], privacy: PrivacyConfig, threat: ThreatConfig
) -> CalibratedMechanism:
    """The configured mechanism's local step without clipping and noise."""
    single = step_alone(network)
    divisor = get_mechanism(privacy.mechanism).clipping(privacy).divide_by
    ledger = open_ledger(network, plans, privacy, threat)
    return CalibratedMechanism(Clipping(divisor), single, silence(network, single), False, ledger)


def build_mechanism(premises: Premises) -> CalibratedMechanism:
    """The configured mechanism for one network; for errors see `build_mechanisms`."""
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
        InputError: the mechanism is not defined for this configuration, or the target can't be
            met for an observer that `threat` distrusts.
    """
    first, privacy = premises[0].network, premises[0].privacy
    mechanism = get_mechanism(privacy.mechanism)
    for each in premises:
        mechanism.check(privacy, each.network, each.plans)
    units = [mechanism.units(each) * moved_by_joining(each.network) for each in premises]

    def ledger_over(premises: Sequence[Premises], noises: Sequence[Deviations]) -> Ledger:
        of_networks = zip(premises, noises, units, strict=True)
        return as_drawn(joint_ledger([build_ledger(*each) for each in of_networks]))

    ledger_of = partial(ledger_over, premises)
    if privacy.calibration == "paper":
        noises = [mechanism.paper_noise(each) for each in premises]
        ledger = ledger_of(noises)
    elif privacy.noise_multiplier is not None:
        silent = ledger_of(_silence(premises))
        noises = []
        for number, (each, unit) in enumerate(zip(premises, units, strict=True)):
            protecting = privacy.noise_multiplier * (largest_shifts(silent, number) * unit)
            noises.append(mechanism.in_parts(each, protecting, silent.distrusted))
        ledger = ledger_of(noises)
    else:
        in_clear = [_as_if_read_alone(each) for each in premises]
        noises, ledger = _least_noise(mechanism, in_clear, units, partial(ledger_over, in_clear))
        if first.sums != in_clear[0].network.sums:
            ledger = ledger_of(noises)
            if not ledger.verified(len(ledger.plans)) <= privacy.epsilon:  # the missing add none
                noises, ledger = _least_noise(mechanism, premises, units, ledger_of)
    result = []
    for each, deviations, unit in zip(premises, noises, units, strict=True):
        lock_step = lock_step_of(mechanism, each.network, each.plans)
        noise = mechanism.noise(each, lock_step, deviations)
        for amended in brought("noises"):
            noise = amended(each, lock_step, noise, unit)
        if not all(np.isfinite(deviations).all() for deviations in noise.every):
            problem = "draws noise whose deviation is no finite number"
            raise InputError("privacy.mechanism", privacy.mechanism, problem)
        clipping = mechanism.clipping(privacy)
        result.append(CalibratedMechanism(clipping, lock_step, noise, True, ledger))
    return tuple(result)


def _silence(premises: Sequence[Premises]) -> list[Deviations]:
    """That nobody adds noise in any network."""
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
    are too small for what somebody sees.

    Args:
        premises: heads are the same nodes in all.
        units: the unit of each device's law, in each network.
        ledger_of: the run's ledger under the noises of each network.
    """
    privacy = premises[0].privacy
    laws = ledger_of(_silence(premises))
    needed = _needed_where_nobody_joins(laws, privacy, premises[0].heads)
    pairs = zip(premises, units, strict=True)
    noises = [mechanism.in_parts(each, needed * unit, laws.distrusted) for each, unit in pairs]
    ledger = ledger_of(noises)
    _refuse_messages_in_clear(ledger, privacy)
    rounds = len(ledger.plans)
    verified = ledger.verified(rounds)
    if 0.99 * privacy.epsilon < verified <= privacy.epsilon:
        return noises, ledger
    distrusted = (line for line in ledger.lines if line.kind in ledger.distrusted)
    shown = (law for line in distrusted for law, _ in ledger.composition(line, rounds))
    if not any(law.largest for law in shown):
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


def _needed_where_nobody_joins(
    laws: Ledger, privacy: PrivacyConfig, heads: np.ndarray
) -> np.ndarray:
    """`_needed_by_device`, and for a head without any device that ever joins the noise that it
    would need if they joined the first round.

    Such devices release nothing, which costs nothing. Their head adds noise all the same: silence
    would show that nobody is there.

    Args:
        heads: int64 (N_L, 2), the (layer, index) of each device's head.
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

    @cache
    def least(composition: Composition, target: float) -> float:
        return least_noise(composition, target, privacy.delta, privacy.adjacency)

    positions = _positions(laws)
    result = np.zeros(sum(len(position.members) for position in positions))
    for position, line in positions.items():
        others = tuple((other, 1.0) for other, _ in line.elsewhere)
        account = line.account if line.account.by_laws else EVERY_ROUND
        at_one = replace(line, deviation=1.0, elsewhere=others, account=account)
        composition = laws.composition(at_one, len(laws.plans))
        unit = 1.0
        if position.joins is not None:  # many weights, one law
            unit, composition = _in_its_largest(composition)
        target = privacy.epsilon - line.account.spent
        result[list(position.members)] = unit * least(composition, target)
    return result


def _positions(ledger: Ledger) -> dict[Position, Release]:
    """Each position of a ledger with one of its lines: rather one of alike rounds, then a
    distrusted observer's, then that of one who is told who joins."""

    def asks_more(line: Release) -> tuple[bool, ...]:
        return not line.account.noises, line.kind in ledger.distrusted, not line.joins_unseen

    return {line.position: line for line in sorted(ledger.lines, key=asks_more)}


def _in_its_largest(composition: Composition) -> tuple[float, Composition]:
    """The largest shift of a composition, and the composition in units of it."""
    largest = max((law.largest for law, _ in composition), default=0.0)
    if largest == 0.0:
        return 1.0, composition
    return largest, tuple(
        (replace(law, shifts=tuple(shift / largest for shift in law.shifts)), count)
        for law, count in composition
    )


def _refuse_messages_in_clear(ledger: Ledger, privacy: PrivacyConfig) -> None:
    for line in ledger.lines:
        shown = ledger.composition(line, len(ledger.plans))
        if line.kind in ledger.distrusted and any(law.largest == inf for law, _ in shown):
            remedy = "a network without trusted servers"
            if KINDS[line.kind].reads_local_broadcasts:
                remedy = "privacy.mechanism: gradient"
            raise InputError(
                "privacy.epsilon",
                privacy.epsilon,
                f"can't be met for {line.observer} (threat: {line.kind}), who see {line.sees} of "
                f"devices {position_name(line.position)}; trust them, or use {remedy}",
            )
