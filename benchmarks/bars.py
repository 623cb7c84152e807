"""What the simulator must reach, as ratios within one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.contenders import FLOWER, MATMULS, ON_RAY, OPACUS, OURS, PFL, TILES, variants
from benchmarks.race import Result
from benchmarks.works import SCALE

# Largest distance of a contender's weights from m2fdp's, where nothing is left to chance, over how
# far they have moved: float32 sums in another order stay far below it, another work far above.
_SAME_WORK = 1e-3
_MEMORY_MIB, _MOST_DEVICES = 819.2, 10_000
# m2fdp and its own matrix products, on one thread each.
ROOFLINE = "a linear, one thread"
# m2fdp and the two products that a step over all records is made of, by the number of threads.
WHOLE_SHARDS = {1: "g whole shards, one thread", 2: "g whole shards, two threads"}
# Whole shards of the most devices that one run is shared out for, in two processes.
_SCALE, _SCALE_DEVICES, _SCALE_S, _SCALE_MIB = "h scale: whole shards", 100_000, 1.0, 1536
# Two processes are chosen where they were faster in earlier rounds, and the other way is tried now
# and then; a machine on which paired medians of equal rounds differ by a tenth shows no less.
_NOT_SLOWER = 0.9
# On one machine a cluster's messages are all that it adds.
ON_A_CLUSTER, _RAY_DEVICES, _ON_RAY = "h scale: Ray, minibatches", 20_000, 1 / 1.3


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
        *_faster(results, "a linear", PFL, 10),
        *_faster(results, "a linear", FLOWER, 50),
        *_faster(results, "a linear, DP", OPACUS, 15),
        *_faster(results, "b mlp", PFL, 4),
        *_faster(results, "b mlp, DP", OPACUS, 7),
        *_faster(results, "c lenet", PFL, 1.25),
        *_faster(results, "c lenet, DP", OPACUS, 4),
        *_faster(results, "d cnn12", PFL, 1.5),
        *_faster(results, "d cnn12, DP", OPACUS, 4),
        *_roofline(results, ROOFLINE, MATMULS, 0.6),
        *(v for group in WHOLE_SHARDS.values() for v in _roofline(results, group, TILES, 0.85)),
        *_memory(results),
        *_constant_cost(results, 1.5),
        *_two_processes(results),
        *_most_devices(results),
        *_on_ray(results),
        *_same_work(results),
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
        verdicts.append(Verdict(bar, f"≤ {_MEMORY_MIB / 1024:.1f} GiB", found, passed, group))
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


def _two_processes(results: Sequence[Result]) -> list[Verdict]:
    """That a second process never makes a round longer, whatever the number of devices."""
    verdicts = []
    for group in dict.fromkeys(result.entry.group for result in results):
        if group not in SCALE:
            continue
        bar, wanted = f"{group}: two processes, times as fast as one", f"≥ {_NOT_SLOWER:g}×"
        runs = _by_processes(results, group)
        ratios = {
            devices: paired_ratio(runs[devices, 1], runs[devices, 2])[1]
            for devices, processes in runs
            if processes == 2 and (devices, 1) in runs
        }
        planned = {each.entry.work.devices for each in results if each.entry.group == group}
        if len(ratios) < len(planned):
            verdicts.append(Verdict(bar, wanted, "not measured", None, group))
            continue
        found = ", ".join(f"{ratio:.2f}× at {devices:,}" for devices, ratio in ratios.items())
        passed = min(ratios.values()) >= _NOT_SLOWER
        verdicts.append(Verdict(bar, wanted, found, passed, group))
    return verdicts


def _most_devices(results: Sequence[Result]) -> list[Verdict]:
    """What a round of the most devices takes, in two processes."""
    runs = _by_processes(results, _SCALE)
    most, fewer = runs.get((_SCALE_DEVICES, 2)), runs.get((_MOST_DEVICES, 2))
    bar, lacks = f"{_SCALE}: {_SCALE_DEVICES:,} devices, two processes, {{}}".format, "not measured"
    time, memory, cost = [
        (bar("a round"), f"≤ {_SCALE_S:g} s"),
        (bar("peak memory"), f"≤ {_SCALE_MIB / 1024:g} GiB"),
        (bar(f"a device-step over one of {_MOST_DEVICES:,}"), "≤ 1×"),
    ]
    if most is None or most.peak_mib is None or fewer is None:
        return [Verdict(*line, lacks, None, _SCALE) for line in (time, memory, cost)]
    seconds, gib = float(np.median(most.ms)) / 1000, most.peak_mib / 1024
    fewer_each = _MOST_DEVICES / _SCALE_DEVICES
    low, median, high = (fewer_each * ratio for ratio in paired_ratio(most, fewer))
    costs = f"{median:.2f}× ({low:.2f} to {high:.2f})"
    return [
        Verdict(*time, f"{seconds:.2f} s", seconds <= _SCALE_S, _SCALE),
        Verdict(*memory, f"{gib:.2f} GiB", most.peak_mib <= _SCALE_MIB, _SCALE),
        Verdict(*cost, costs, median <= 1, _SCALE),
    ]


def _on_ray(results: Sequence[Result]) -> list[Verdict]:
    """That two local nodes are hardly slower than two processes, at the most devices that are
    worth sharing on one machine."""
    bar, wanted = f"{ON_A_CLUSTER}: two nodes, times as fast as two processes", f"≥ {_ON_RAY:.2f}×"
    (ours, theirs) = (
        next(
            (
                result
                for result in results
                if result.entry.group == ON_A_CLUSTER
                and (result.entry.contender, result.entry.threads) == (contender, 2)
                and result.entry.work.devices == _RAY_DEVICES
                and result.ms
            ),
            None,
        )
        for contender in (OURS, ON_RAY)
    )
    if ours is None or theirs is None:
        return [Verdict(bar, wanted, "not measured", None, ON_A_CLUSTER)]
    low, median, high = paired_ratio(ours, theirs)
    found = f"{median:.2f}× ({low:.2f} to {high:.2f}) at {_RAY_DEVICES:,}"
    return [Verdict(bar, wanted, found, median >= _ON_RAY, ON_A_CLUSTER)]


def _by_processes(results: Sequence[Result], group: str) -> dict[tuple[int, int], Result]:
    """What was measured of m2fdp alone in a group, by the numbers of devices and processes."""
    return {
        (result.entry.work.devices, result.entry.threads): result
        for result in results
        if result.entry.group == group and result.entry.contender == OURS and result.ms
    }


def _same_work(results: Sequence[Result]) -> list[Verdict]:
    """That a ratio compares equal works."""
    verdicts = []
    for group in dict.fromkeys(result.entry.group for result in results):
        peers = {
            result.entry.contender: result.apart
            for result in results
            if result.entry.group == group
            and result.entry.contender != OURS
            and result.apart is not None
        }
        if not peers:
            continue
        farthest = max(peers, key=lambda peer: peers[peer])
        found = f"{peers[farthest]:.1e} ({farthest})"
        bar = f"{group}: the same work, farthest peer's weights from m2fdp's"
        passed = peers[farthest] <= _SAME_WORK
        verdicts.append(Verdict(bar, f"≤ {_SAME_WORK:g}", found, passed, group))
    return verdicts
