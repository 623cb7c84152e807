"""From a privacy configuration to a mechanism: what it clips, and how much noise it adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import expm1, log, log1p, prod, sqrt
from typing import Literal

import numpy as np

from m2fdp.config import PrivacyConfig, ThreatConfig
from m2fdp.errors import InputError
from m2fdp.privacy.accounting import Composition, least_noise
from m2fdp.privacy.ledger import Ledger, Line, joint_ledger
from m2fdp.privacy.mechanisms import (
    Clipping,
    LockStep,
    Mechanism,
    Noise,
    silence,
    step_alone,
    step_together,
)
from m2fdp.privacy.observers import build_ledger, open_ledger
from m2fdp.privacy.positions import position_name
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.topology.network import Network, noise_adders


def check_delta(delta: float, shard_sizes: np.ndarray, rates: np.ndarray, steps: int) -> None:
    """Delta must not pay for what it is meant to exclude.

    At 1/D a mechanism that publishes one record in clear would already pass. At the chance that a
    record is ever drawn, one that publishes in clear whatever it draws would: noise then costs
    nothing to leave out, and the accountant leaves it out.

    Args:
        shard_sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), the chances q_j that a local step uses a record.
        steps: local steps of the whole run.

    Raises:
        InputError: it is not below both.
    """
    largest = int(shard_sizes.max())
    if delta >= 1 / largest:
        raise InputError(
            "privacy.delta",
            delta,
            f"must be below 1/{largest} = {1 / largest:.3g}, "
            "one over the records of the largest shard",
        )
    rarest = float(rates.min())
    ever = 1.0 if rarest == 1 else -expm1(steps * log1p(-rarest))
    if delta >= ever:
        raise InputError(
            "privacy.delta",
            delta,
            f"must be below {ever:.3g}, the chance that {steps} steps at rate {rarest:.3g} ever "
            "draw a record: else what is drawn could go out in clear and the promise would hold",
        )


def no_privacy(
    network: Network, plans: Sequence[RoundPlan], privacy: PrivacyConfig, threat: ThreatConfig
) -> Mechanism:
    """The local step of the configured mechanism with clipping and noise off."""
    single = step_alone(network)
    return Mechanism(
        Clipping(_divisor(privacy)),
        single,
        silence(network, single),
        private=False,
        ledger=open_ledger(network.tree.n_devices, plans, privacy, threat),
    )


def build_mechanism(
    network: Network,
    shard_sizes: np.ndarray,
    rates: np.ndarray,
    plans: Sequence[RoundPlan],
    privacy: PrivacyConfig,
    threat: ThreatConfig,
) -> Mechanism:
    """The configured mechanism, calibrated to the target for this network and these shards.

    For the arguments and errors see `build_mechanisms`.
    """
    (mechanism,) = build_mechanisms([network], shard_sizes, rates, plans, privacy, threat)
    return mechanism


def build_mechanisms(
    networks: Sequence[Network],
    shard_sizes: np.ndarray,
    rates: np.ndarray,
    plans: Sequence[RoundPlan],
    privacy: PrivacyConfig,
    threat: ThreatConfig,
) -> tuple[Mechanism, ...]:
    """The mechanism of each network of a run; together they meet the target.

    Args:
        networks: that differ in who takes part only.
        shard_sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), q_j.
        plans: the rounds t = 1…T, each with the number of its network.

    Returns:
        One mechanism a network. They share one ledger, that of the whole run.

    Raises:
        InputError: the target can't be met for an observer that `threat` distrusts.
    """
    lock_steps = [who_steps_together(network, privacy) for network in networks]
    units = [_units(lock_step, shard_sizes, rates, privacy) for lock_step in lock_steps]

    def ledger_of(noises: Sequence[Sequence[np.ndarray]]) -> Ledger:
        return joint_ledger(
            [
                build_ledger(network, rates, noise, unit, plans, privacy, threat)
                for network, noise, unit in zip(networks, noises, units, strict=True)
            ]
        )

    if privacy.calibration == "paper":
        noises = [_paper_noise(network, rates, plans, privacy) for network in networks]
        ledger = ledger_of(noises)
    else:
        noises, ledger = _least_noise(networks[0], units, ledger_of, privacy)
    return tuple(
        Mechanism(
            _clipping(privacy), lock_step, _placed(network, lock_step, noise, privacy), True, ledger
        )
        for network, lock_step, noise in zip(networks, lock_steps, noises, strict=True)
    )


def who_steps_together(network: Network, privacy: PrivacyConfig) -> LockStep:
    """The lock-step groups of the configured mechanism."""
    return step_together(network) if privacy.mechanism == "gradient" else step_alone(network)


def _divisor(privacy: PrivacyConfig) -> Literal["drawn", "expected"]:
    """Record-wise clipped sums are divided by a public number, else the clip would not bound."""
    return "expected" if _clips_records(privacy) else "drawn"


def _clips_records(privacy: PrivacyConfig) -> bool:
    if privacy.unit == "device":
        return False
    return privacy.mechanism == "gradient" or privacy.drift == "non_expansive"


def _clipping(privacy: PrivacyConfig) -> Clipping:
    norm = privacy.clipping_norm
    if _clips_records(privacy):
        by_class = privacy.mechanism == "upload"
        return Clipping(_divisor(privacy), record_norm=norm, by_class=by_class)
    if privacy.unit == "device" and privacy.mechanism == "upload":
        return Clipping(_divisor(privacy), update_norm=norm)
    return Clipping(_divisor(privacy), batch_norm=norm)


def _units(
    lock_step: LockStep, shard_sizes: np.ndarray, rates: np.ndarray, privacy: PrivacyConfig
) -> np.ndarray:
    """What shift 1 of each device's laws means, over eta: float64 (N_L,)."""
    factor = 1.0
    if _clips_records(privacy):
        # The public divisor B_j = q_j D_j.
        factor = 1.0 / (rates * shard_sizes)
    elif privacy.unit == "record":
        # Two minibatch gradients of norm G are at most 2G apart.
        factor = 2.0
    # Under `upload` the path's weights are part of the laws.
    return lock_step.weights * privacy.clipping_norm * factor


def _paper_noise(
    network: Network, rates: np.ndarray, plans: Sequence[RoundPlan], privacy: PrivacyConfig
) -> list[np.ndarray]:
    """J Prop. 1 with Lemma 1: sigma = alpha q Delta sqrt(K T ln(1/delta)) / epsilon, where
    Delta = 2 eta K G / (product of s_l' over the layers l' from the node's to L-1).
    """
    tree = network.tree
    most_steps = max(len(plan.layers) for plan in plans)
    compositions = most_steps * len(plans)
    scale = sqrt(compositions * log(1 / privacy.delta)) / privacy.epsilon
    factor = privacy.alpha * rates.max() * scale
    noise = []
    for layer, noised in enumerate(network.noised, start=1):
        shared = prod(network.smallest_fanout(below) for below in range(layer, tree.depth))
        sensitivity = 2 * most_steps * privacy.clipping_norm / shared
        noise.append(np.where(noised, factor * sensitivity, 0.0))
    return noise


def _least_noise(
    network: Network,
    units: Sequence[np.ndarray],
    ledger_of: Callable[[list[list[np.ndarray]]], Ledger],
    privacy: PrivacyConfig,
) -> tuple[list[list[np.ndarray]], Ledger]:
    """The least noise for which every distrusted observer stays within the target.

    First each head gets what its own records need against somebody who sees its every release.
    Where nobody distrusted does, all noises shrink by one factor until the target is met.

    Args:
        network: any of the run's; noise is added at the same nodes in all.
        units: of the devices' laws in each network.
        ledger_of: the run's ledger under the noises of each network.
    """
    noises = [[np.zeros(len(parents)) for parents in network.tree.parents] for _ in units]
    laws = ledger_of(noises)
    adders = noise_adders(network)
    needed: dict[Composition, float] = {}
    for line in {line.position: line for line in laws.lines}.values():
        composition = _at_unit_noise(laws, line)
        if composition not in needed:
            needed[composition] = least_noise(
                composition, privacy.epsilon, privacy.delta, privacy.adjacency
            )
        for device in line.position.members:
            layer, head = adders[device]
            for noise, unit in zip(noises, units, strict=True):
                scale = noise[layer - 1]
                scale[head] = max(scale[head], needed[composition] * unit[device])
    ledger = ledger_of(noises)
    _refuse_messages_in_clear(ledger, privacy)
    rounds = len(ledger.plans)
    verified = ledger.verified(rounds)
    if 0.99 * privacy.epsilon < verified <= privacy.epsilon:
        return noises, ledger

    def times(log_factor: float) -> list[list[np.ndarray]]:
        return [[scale * np.exp(log_factor) for scale in noise] for noise in noises]

    def overspend(log_factor: float) -> float:
        verified = ledger_of(times(log_factor)).verified(rounds)
        return log(max(verified, 1e-12) / privacy.epsilon)

    factor = 0.0
    if verified <= privacy.epsilon:
        from scipy.optimize import brentq  # a quarter of a second, and few get here

        low = -0.1
        while overspend(low) <= 0:
            low -= 0.5
        factor = brentq(overspend, low, factor, xtol=1e-4)
    # What is returned is what was verified: the ledger's rounding may ask for a hair more.
    step = 2.5e-4
    while overspend(factor) > 0:
        factor, step = factor + step, 2 * step
    return times(factor), ledger_of(times(factor))


def _at_unit_noise(ledger: Ledger, line: Line) -> Composition:
    elsewhere = tuple((position, 1.0) for position, _ in line.elsewhere)
    at_one = replace(line, noise=1.0, elsewhere=elsewhere)
    return ledger.composition(at_one, len(ledger.plans))


def _refuse_messages_in_clear(ledger: Ledger, privacy: PrivacyConfig) -> None:
    for line in ledger.lines:
        if line.kind in ledger.distrusted and line.noise == 0:
            raise InputError(
                "privacy.epsilon",
                privacy.epsilon,
                f"can't be met for {line.observer} (threat: {line.kind}), who see {line.sees} of "
                f"devices {position_name(line.position)}; trust them, or use "
                + (
                    "privacy.mechanism: gradient or privacy.downlink_noise: true"
                    if line.kind in {"siblings", "cousins", "downlinks"}
                    else "a network without trusted servers"
                ),
            )


def _placed(
    network: Network, lock_step: LockStep, noise: Sequence[np.ndarray], privacy: PrivacyConfig
) -> Noise:
    """Noise where the mechanism draws it."""
    still = silence(network, lock_step)
    if privacy.mechanism == "gradient":
        steps = np.array([noise[layer - 1][index] for layer, index in lock_step.nodes])
        return replace(still, steps=steps)
    if not privacy.downlink_noise:
        return replace(still, messages=tuple(noise))
    broadcasts = [np.zeros_like(scale) for scale in still.broadcasts]
    adders = noise_adders(network)
    for device, (head_layer, head) in enumerate(adders):
        for layer in range(head_layer, network.tree.depth):
            node = network.tree.ancestors[layer][device]
            broadcasts[layer][node] = noise[head_layer - 1][head]
    return replace(still, messages=tuple(noise), broadcasts=tuple(broadcasts))
