"""How far one record, or one device, moves a release under `upload`.

Two runs that differ by a record part when it is first drawn. Time is cut at public resets: there
all that depends on the record follows from noised releases. Within such a window steps widen the
difference. An un-noised synchronisation averages it and hands it to all devices below.

The difference is tracked by *kin*: devices whose deepest common ancestor with the record's device
lies at the same layer differ equally. So a window costs one number a layer, for any tree.

A proximal term moves every step a part a = eta mu of the way to a centre, un-noised. Models that
differ by d, with centres that differ by c, differ by (1-a) d + a c after that. Centres are equal at
a public reset. After an un-noised synchronisation received models differ as its models do.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from m2fdp.core.privacy.accounting import ShiftLaw
from m2fdp.core.schedule.rounds import RoundPlan

# A law of more shifts than this is rounded up to so many; each shift costs time.
_MOST_SHIFTS = 32
# Shifts rarer than this are rounded up to the largest.
_RARE = 1e-10


@dataclass(frozen=True)
class Steps:
    """A proximal term's part a = eta mu of a local step, at most 1, and whether its centre is the
    model that was last received, not the round's first."""

    part: float = 0.0
    received: bool = True


@dataclass(frozen=True)
class Window:
    """The local steps between two public resets.

    Attributes:
        syncs: the layer of the un-noised synchronisation after each step; None for none, and after
            the last step, which ends in the release.
        release_layer: the layer whose node averages the released model.
    """

    syncs: tuple[int | None, ...]
    release_layer: int


def windows(plan: RoundPlan, head_layer: int) -> list[Window]:
    """One round's windows for devices with a head at layer h: the head releases at an aggregation
    above h and at a global one. Any other aggregation is an un-noised synchronisation."""
    result: list[Window] = []
    syncs: list[int | None] = []
    for layer in plan.layers:
        if layer is not None and (layer < head_layer or layer == 0):
            result.append(Window((*syncs, None), max(layer, head_layer)))
            syncs = []
        else:
            syncs.append(layer)
    return result


def record_law(
    window: Window, head_layer: int, shares: Sequence[float], sampling_rate: float, steps: Steps
) -> ShiftLaw:
    """The law of a record's shift at the window's release, in units of 2·eta·G: the most that one
    step with a clipped minibatch gradient can part two models.

    Args:
        shares: rho of the nodes on the path from layer h+1 down to the device.
    """
    n = len(window.syncs)
    added = ([0.0] * first + [1.0] * (n - first) for first in range(n))
    shifts = [_spread(window, head_layer, shares, of_one, steps) for of_one in added]
    # First drawn at step k: q (1-q)^(k-1).
    chances = sampling_rate * (1 - sampling_rate) ** np.arange(n)
    return _law([0.0, *shifts], [(1 - sampling_rate) ** n, *chances])


def device_law(window: Window, head_layer: int, shares: Sequence[float]) -> ShiftLaw:
    """The shift when a whole device is added or removed, in units of eta·S, the norm of clipped
    updates. The device's own update is there or not: 1. Another device's differs by up to 2."""
    added = [0.0 if sync is None else 2.0 for sync in window.syncs]
    added[-1] = 2.0
    return ShiftLaw((_spread(window, head_layer, shares, added, Steps()),), (1.0,))


def _spread(
    window: Window, head_layer: int, shares: Sequence[float], added: Sequence[float], steps: Steps
) -> float:
    """The release's shift, where each step adds so much to the difference of any other device that
    already differs; where that is something, it adds 1 to the device's own."""
    # differences[i]: of the kin at layer head_layer + i; the last is the device itself.
    differences = np.zeros(len(shares) + 1)
    centers = np.zeros_like(differences)
    for sync, of_others in zip(window.syncs, added, strict=True):
        if of_others:
            tainted = differences > 0
            if steps.part:
                differences += steps.part * (centers - differences)
            differences[:-1][tainted[:-1]] += of_others
            differences[-1] += 1.0
        if sync is not None:
            differences[sync - head_layer :] = _average(differences, shares, sync - head_layer)
            if steps.received:  # by all devices, each from its own server of the layer
                centers = differences.copy()
    return float(_average(differences, shares, window.release_layer - head_layer))


def _average(differences: np.ndarray, shares: Sequence[float], top: int) -> float:
    """The difference of the average over all devices below the ancestor at index `top`."""
    total, weight = 0.0, 1.0
    for i in range(top, len(shares)):
        total += weight * (1 - shares[i]) * differences[i]
        weight *= shares[i]
    return total + weight * differences[-1]


def _law(shifts: Sequence[float], chances: Sequence[float]) -> ShiftLaw:
    """A law with equal shifts merged, and at most so many shifts; rounding is always up."""
    sums = defaultdict[float, float](float)
    for shift, chance in zip(shifts, chances, strict=True):
        sums[round(shift, 12)] += chance
    pairs = sorted((shift, chance) for shift, chance in sums.items() if chance > 0)
    if len(pairs) > _MOST_SHIFTS:
        pairs = _coarser(pairs)
    total = sum(chance for _, chance in pairs)
    return ShiftLaw(tuple(s for s, _ in pairs), tuple(c / total for _, c in pairs))


def _coarser(pairs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    shifts, chances = np.array(pairs).T
    tails = chances[::-1].cumsum()[::-1]
    usual = shifts[tails > _RARE].max()
    grid = np.append(np.linspace(0.0, usual, _MOST_SHIFTS - 1), shifts[-1])
    places = np.searchsorted(grid, shifts - 1e-12)
    sums = np.bincount(places, weights=chances, minlength=len(grid))
    return [(float(s), float(c)) for s, c in zip(grid, sums, strict=True) if c > 0]
