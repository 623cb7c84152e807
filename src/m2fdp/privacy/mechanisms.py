"""The two mechanisms: what a local step clips, and who adds how much noise to what.

`upload` (the papers'): the minibatch gradient is clipped and the model message is noised.
`gradient`: each record's gradient is clipped and every local step is noised, at the node that
the noise plan names; a trusted server and all devices below it step together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log, prod, sqrt
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from m2fdp.config import PrivacyConfig, ThreatConfig
from m2fdp.errors import InputError
from m2fdp.privacy.accounting import ACCOUNTANT, Composition, least_noise
from m2fdp.privacy.ledger import (
    Ledger,
    Line,
    build_ledger,
    open_ledger,
    position_name,
)
from m2fdp.privacy.taint import RoundPlan
from m2fdp.topology.network import Network, noise_adders


@dataclass(frozen=True)
class Clipping:
    """What bounds one local step.

    Attributes:
        record_norm: the norm each record's gradient is clipped to, or None.
        batch_norm: the norm the minibatch gradient is clipped to, or None.
        update_norm: the norm, in units of eta, that a device's whole update between two
            synchronisations is clipped to, or None.
        by_class: whether a record's gradient is clipped class by class, each class to
            record_norm / sqrt(classes), which keeps one-vs-rest losses convex.
        divide_by: the clipped sum is divided by the `drawn` minibatch size (J eq. 6) or by
            the `expected` one, which is public and the same for neighbours.
    """

    divide_by: Literal["drawn", "expected"]
    record_norm: float | None = None
    batch_norm: float | None = None
    update_norm: float | None = None
    by_class: bool = False


@dataclass(frozen=True, eq=False)
class LockStep:
    """Which devices step together, as one learner, under `gradient`.

    Attributes:
        nodes: int64 (G, 2), the (layer, index) of the node at the head of each group.
        group_of: int64 (N_L,), each device's group.
        weights: float64 (N_L,), the product of rho on the path from the device to the head.
    """

    nodes: np.ndarray
    group_of: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise standard deviations, all in units of the step size eta.

    Attributes:
        steps: float64 (G,) per lock-step group, added to its gradient at every local step.
        messages: for layer l = 1…L, float64 (N_l,), added to the node's message to its parent.
        broadcasts: for layer l = 0…L-1, float64 (N_l,), added by a trusted server to what it
            broadcasts after a local aggregation.
    """

    steps: np.ndarray
    messages: tuple[np.ndarray, ...]
    broadcasts: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Everything the privacy configuration decides about a run.

    Attributes:
        clipping, lock_step, noise: see these types.
        private: whether it clips and noises at all.
        ledger: what every observer learns.
    """

    clipping: Clipping
    lock_step: LockStep
    noise: Noise
    private: bool
    ledger: Ledger

    def epsilon(self, rounds: int) -> float:
        """Verified epsilon after some rounds: the largest over records and distrusted observers."""
        return self.ledger.verified(rounds)

    def affordable_rounds(self, budget: float | None) -> int:
        """How many of the planned rounds stay within a budget; all of them without one."""
        planned = len(self.ledger.plans)
        if budget is None or not self.private or self.epsilon(planned) <= budget:
            return planned
        within, beyond = 0, planned
        while beyond - within > 1:
            middle = (within + beyond) // 2
            if self.epsilon(middle) <= budget:
                within = middle
            else:
                beyond = middle
        return within


def check_delta(delta: float, shard_sizes: np.ndarray) -> None:
    """Raises InputError unless delta is below 1/(records of the largest shard).

    At 1/D a mechanism that publishes one record in clear would already pass.
    """
    largest = int(shard_sizes.max())
    if delta >= 1 / largest:
        raise InputError(
            "privacy.delta",
            delta,
            f"must be below 1/{largest} = {1 / largest:.3g}, "
            "one over the records of the largest shard",
        )


def no_privacy(
    network: Network, plans: Sequence[RoundPlan], privacy: PrivacyConfig, threat: ThreatConfig
) -> Mechanism:
    """The local step of the configured mechanism with clipping and noise off."""
    single = _singletons(network)
    return Mechanism(
        Clipping(_divisor(privacy)),
        single,
        _silence(network, single),
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

    Args:
        shard_sizes: int64 (N_L,), D_j.
        rates: float64 (N_L,), q_j.
        plans: the rounds t = 1…T.

    Raises:
        InputError: the target can't be met for an observer that `threat` distrusts.
    """
    lock_step = _lock_step(network) if privacy.mechanism == "gradient" else _singletons(network)
    units = _units(lock_step, shard_sizes, rates, privacy)
    if privacy.calibration == "paper":
        noise = _paper_noise(network, rates, plans, privacy)
        ledger = build_ledger(network, rates, noise, units, plans, privacy, threat)
    else:
        noise, ledger = _least_noise(network, rates, units, plans, privacy, threat)
    return Mechanism(
        _clipping(privacy), lock_step, _placed(network, lock_step, noise, privacy), True, ledger
    )


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
    rates: np.ndarray,
    units: np.ndarray,
    plans: Sequence[RoundPlan],
    privacy: PrivacyConfig,
    threat: ThreatConfig,
) -> tuple[list[np.ndarray], Ledger]:
    """The least noise for which every distrusted observer stays within the target.

    First each head gets what its own records need against somebody who sees its every release.
    Where nobody distrusted does, all noises shrink by one factor until the target is met.
    """
    unnoised = [np.zeros(len(parents)) for parents in network.tree.parents]
    laws = build_ledger(network, rates, unnoised, units, plans, privacy, threat)
    adders = noise_adders(network)
    needed: dict[Composition, float] = {}
    noise = [scale.copy() for scale in unnoised]
    for line in {line.position: line for line in laws.lines}.values():
        composition = _at_unit_noise(laws, line)
        if composition not in needed:
            needed[composition] = least_noise(
                composition, privacy.epsilon, privacy.delta, privacy.adjacency
            )
        for device in line.position.members:
            layer, head = adders[device]
            scale = noise[layer - 1]
            scale[head] = max(scale[head], needed[composition] * units[device])
    ledger = build_ledger(network, rates, noise, units, plans, privacy, threat)
    _refuse_messages_in_clear(ledger, privacy)
    rounds = len(plans)
    if ledger.verified(rounds) > 0.99 * privacy.epsilon:
        return noise, ledger

    def shrunk(log_factor: float) -> Ledger:
        smaller = [scale * np.exp(log_factor) for scale in noise]
        return build_ledger(network, rates, smaller, units, plans, privacy, threat)

    def overspend(log_factor: float) -> float:
        return log(max(shrunk(log_factor).verified(rounds), 1e-12) / privacy.epsilon)

    low = -0.1
    while overspend(low) <= 0:
        low -= 0.5
    factor = brentq(overspend, low, 0.0, xtol=1e-4)
    while overspend(factor) > 0:
        factor += 2.5e-4
    return [scale * np.exp(factor) for scale in noise], shrunk(factor)


def _at_unit_noise(ledger: Ledger, line: Line) -> Composition:
    return ledger.composition(replace(line, noise=1.0), len(ledger.plans))


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
                    if line.kind in {"siblings", "downlinks"}
                    else "a network without trusted servers"
                ),
            )


def _placed(
    network: Network, lock_step: LockStep, noise: Sequence[np.ndarray], privacy: PrivacyConfig
) -> Noise:
    """Noise where the mechanism draws it."""
    silence = _silence(network, lock_step)
    if privacy.mechanism == "gradient":
        steps = np.array([noise[layer - 1][index] for layer, index in lock_step.nodes])
        return replace(silence, steps=steps)
    if not privacy.downlink_noise:
        return replace(silence, messages=tuple(noise))
    broadcasts = [np.zeros_like(scale) for scale in silence.broadcasts]
    adders = noise_adders(network)
    for device, (head_layer, head) in enumerate(adders):
        for layer in range(head_layer, network.tree.depth):
            node = network.tree.ancestors[layer][device]
            broadcasts[layer][node] = noise[head_layer - 1][head]
    return replace(silence, messages=tuple(noise), broadcasts=tuple(broadcasts))


def summary(mechanism: Mechanism, rounds: int, privacy: PrivacyConfig) -> dict[str, Any]:
    """What a run promises, with every assumption the promise rests on, ready for JSON.

    Infinite epsilons are the text "inf", which JSON has no number for.
    """
    if not mechanism.private:
        return {
            "guarantee": "none",
            "note": "no clipping and no noise: epsilon is infinite for everybody",
        }
    ledger = mechanism.ledger
    return {
        "guarantee": "verified",
        "mechanism": privacy.mechanism,
        "calibration": privacy.calibration,
        "epsilon_nominal": privacy.epsilon,
        "epsilon_verified": _for_json(mechanism.epsilon(rounds)),
        "delta": privacy.delta,
        "clipping_norm": privacy.clipping_norm,
        "accountant": ACCOUNTANT,
        "unit": privacy.unit,
        "adjacency": privacy.adjacency,
        "drift": privacy.drift if privacy.mechanism == "upload" else "none, noise at every step",
        "sampling": "poisson",
        "distrusted": sorted(ledger.distrusted),
        "epsilon_by_observer": {
            kind: _for_json(value) for kind, value in ledger.by_kind(rounds).items()
        },
        "assumptions": assumptions(privacy),
        "rounds": rounds,
    }


def _for_json(value: float) -> float | str:
    return "inf" if value == inf else value


def assumptions(privacy: PrivacyConfig) -> list[str]:
    """What epsilon rests on and a run can't check."""
    result = [
        "trusted servers are trustworthy, and nobody else reads the links into them",
        "tree, trust, shard sizes and schedule are public and independent of the private data",
        "noise comes from a seeded generator: made for simulation",
    ]
    if privacy.mechanism == "upload" and privacy.unit == "record" and privacy.drift == "smooth":
        result.append(f"the loss is {privacy.smoothness:g}-smooth, as declared")
    return result


def warnings(mechanism: Mechanism, rounds: int, privacy: PrivacyConfig) -> list[str]:
    """One line for each thing that a user should know before trusting the number."""
    if not mechanism.private:
        return []
    exposed: dict[str, float] = {
        kind: value
        for kind, value in mechanism.ledger.by_kind(rounds).items()
        if kind not in {*mechanism.ledger.distrusted, "trusted_servers"} and value > privacy.epsilon
    }
    names = [f"{kind} (ε {'∞' if v == inf else f'{v:.3g}'})" for kind, v in exposed.items()]
    lines = [f"ε rests on: {assumption}" for assumption in assumptions(privacy)]
    verified = mechanism.epsilon(rounds)
    if verified > privacy.epsilon:
        lines.insert(0, f"verified ε {verified:.3g} exceeds the nominal {privacy.epsilon:g}")
    if names:
        lines.insert(0, "not distrusted, but could learn more than the target: " + ", ".join(names))
    return lines


def _lock_step(network: Network) -> LockStep:
    tree = network.tree
    nodes, group_of = np.unique(noise_adders(network), axis=0, return_inverse=True)
    head_layer = nodes[group_of, 0]
    weights = np.ones(tree.n_devices)
    for layer in range(tree.depth, 0, -1):
        inside = head_layer < layer
        weights[inside] *= network.weights[layer - 1][tree.ancestors[layer][inside]]
    return LockStep(nodes, group_of, weights)


def _singletons(network: Network) -> LockStep:
    tree = network.tree
    devices = np.arange(tree.n_devices)
    nodes = np.stack([np.full_like(devices, tree.depth), devices], axis=1)
    return LockStep(nodes, devices, np.ones(tree.n_devices))


def _silence(network: Network, lock_step: LockStep) -> Noise:
    tree = network.tree
    return Noise(
        np.zeros(len(lock_step.nodes)),
        tuple(np.zeros(tree.n_nodes(layer)) for layer in range(1, tree.depth + 1)),
        tuple(np.zeros(tree.n_nodes(layer)) for layer in range(tree.depth)),
    )
