"""What the simulator must reach, as ratios within one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.contenders import FLOWER, MATMULS, OPACUS, OURS, PFL, TILES, variants
from benchmarks.race import Result

# Largest distance of a contender's accuracy from m2fdp's.
PARITY = {"none": 0.03, "untrusted": 0.05}
_MEMORY_MIB, _MOST_DEVICES = 2048, 10_000
# m2fdp and its own matrix products, on one thread each.
ROOFLINE = "a linear, one thread"
# m2fdp and the two products that a step over all records is made of, by the number of threads.
WHOLE_SHARDS = {1: "g whole shards, one thread", 2: "g whole shards, two threads"}


@dataclass(frozen=True)
class Verdict:
    """One bar: what was wanted, what was found, and the groups it is about.

    Attributes:
        passed: None if it could not be measured.
    """

    bar: str
    wanted: str
    found: str
    passed: bool | None
    group: str


def judge(results: Sequence[Result]) -> list[Verdict]:
    """Every bar, in the order of the works; bars of groups that were not run are left out."""
    groups = {result.entry.group for result in results}
    verdicts = [
        *_faster(results, "a linear", PFL, 5),
        *_faster(results, "a linear", FLOWER, 50),
        *_faster(results, "a linear, DP", OPACUS, 8),
        *_faster(results, "b mlp, DP", OPACUS, 8),
        *_faster(results, "c lenet", PFL, 1.2),
        *_faster(results, "c lenet, DP", OPACUS, 2),
        *_faster(results, "d cnn12", PFL, 1.2),
        *_faster(results, "d cnn12, DP", OPACUS, 2),
        *_roofline(results, ROOFLINE, MATMULS, 0.6),
        *(v for group in WHOLE_SHARDS.values() for v in _roofline(results, group, TILES, 0.6)),
        *_memory(results),
        *_constant_cost(results, 1.2),
        *_parity(results),
    ]
    return [verdict for verdict in verdicts if verdict.group in groups]


def paired_ratio(slow: Result, fast: Result) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile over the turns of slow's ms over fast's."""
    turns = min(len(slow.ms), len(fast.ms))
    ratios = np.array(slow.ms[:turns]) / np.array(fast.ms[:turns])
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return float(low), float(median), float(high)


def best(results: Sequence[Result], group: str, peer: str) -> Result | None:
    """The fastest of a peer's configurations."""
    measured = [
        result
        for result in results
        if result.entry.group == group and result.entry.contender in variants(peer) and result.ms
    ]
    return min(measured, key=lambda result: float(np.median(result.ms)), default=None)


def _faster(results: Sequence[Result], group: str, peer: str, factor: float) -> list[Verdict]:
    ours, theirs = best(results, group, OURS), best(results, group, peer)
    bar, wanted = f"{group}: faster than {peer}", f"≥ {factor:g}×"
    if ours is None or theirs is None:
        return [Verdict(bar, wanted, "not measured", None, group)]
    low, median, high = paired_ratio(theirs, ours)
    found = f"{median:.2f}× ({low:.2f} to {high:.2f}; {theirs.entry.contender})"
    return [Verdict(bar, wanted, found, median >= factor, group)]


def _roofline(results: Sequence[Result], group: str, bare: str, share: float) -> list[Verdict]:
    ours, products = best(results, group, OURS), best(results, group, bare)
    bar, wanted = f"{group}: share of the {bare}", f"≥ {share:.0%}"
    if ours is None or products is None:
        return [Verdict(bar, wanted, "not measured", None, group)]
    low, median, high = paired_ratio(products, ours)
    found = f"{median:.0%} ({low:.0%} to {high:.0%})"
    return [Verdict(bar, wanted, found, median >= share, group)]


def _memory(results: Sequence[Result]) -> list[Verdict]:
    verdicts = []
    for result in _many(results):
        group, peak = result.entry.group, result.peak_mib
        if result.entry.work.devices != _MOST_DEVICES:
            continue
        bar = f"{group}: peak memory of {_MOST_DEVICES:,} devices"
        found = "not measured" if peak is None else f"{peak / 1024:.2f} GiB"
        passed = None if peak is None else peak <= _MEMORY_MIB
        verdicts.append(Verdict(bar, f"≤ {_MEMORY_MIB / 1024:g} GiB", found, passed, group))
    return verdicts


def _constant_cost(results: Sequence[Result], factor: float) -> list[Verdict]:
    verdicts = []
    for group in dict.fromkeys(result.entry.group for result in _many(results)):
        bar = f"{group}: cost of a device-step, dearest over cheapest"
        wanted = f"≤ {factor:g}×"
        here = [result for result in _many(results) if result.entry.group == group]
        failed = [f"{result.entry.work.devices:,}" for result in here if not result.ms]
        if failed:
            found = f"not measured of {', '.join(failed)} devices"
            verdicts.append(Verdict(bar, wanted, found, None, group))
            continue
        costs = {result.entry.work.devices: device_step_us(result) for result in here}
        spread = max(costs.values()) / min(costs.values())
        found = ", ".join(f"{cost:.1f} µs at {devices:,}" for devices, cost in costs.items())
        found = f"{spread:.2f}× ({found})"
        verdicts.append(Verdict(bar, wanted, found, spread <= factor, group))
    return verdicts


def device_step_us(result: Result) -> float:
    """Median microseconds of one local step of one device."""
    steps = result.entry.work.devices * result.entry.work.local_steps
    return 1000 * float(np.median(result.ms)) / steps


def _many(results: Sequence[Result]) -> list[Result]:
    return [
        result
        for result in results
        if result.entry.group.startswith("e ") and result.entry.contender == OURS
    ]


def _parity(results: Sequence[Result]) -> list[Verdict]:
    verdicts = []
    for reference in results:
        group, tolerance = reference.entry.group, PARITY.get(reference.entry.work.privacy)
        if reference.entry.contender != OURS or reference.accuracy is None or tolerance is None:
            continue
        peers = {
            result.entry.contender: result.accuracy - reference.accuracy
            for result in results
            if result.entry.group == group
            and result.entry.work == reference.entry.work
            and result.entry.contender != OURS
            and result.accuracy is not None
        }
        if not peers:
            continue
        farthest = max(peers, key=lambda peer: abs(peers[peer]))
        found = f"{peers[farthest]:+.3f} ({farthest})"
        bar = f"{group}: accuracy, farthest peer from m2fdp's {reference.accuracy:.3f}"
        passed = abs(peers[farthest]) <= tolerance
        verdicts.append(Verdict(bar, f"± {tolerance}", found, passed, group))
    return verdicts
