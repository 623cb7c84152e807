"""`python -m benchmarks`: run the races, judge the bars, write the report."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.bars import ON_A_CLUSTER, ROOFLINE, WHOLE_SHARDS, judge
from benchmarks.contenders import (
    FLOWER,
    MATMULS,
    ON_RAY,
    OPACUS,
    OURS,
    PFL,
    PLAIN,
    TILES,
    variants,
)
from benchmarks.race import Entry, distances, race
from benchmarks.report import write_report
from benchmarks.works import COMPARED, MINIBATCHES, SCALE, WHOLE, Work, many_devices, private

_FOLDER = Path(__file__).parent
# 1,024 devices below trees of depth 1, 2, 5 and 10.
_DEPTHS = ((1024,), (32, 32), (4,) * 5, (2,) * 10)


def races(threads: int, device: str) -> list[list[Entry]]:
    """All races; the entries of one take turns."""
    compared = [
        entries
        for work in COMPARED.values()
        for entries in (_peers(work, threads, device), _private_peers(work, threads, device))
    ]
    many = [
        _many("e many devices", "none", threads, device)
        + [
            Entry("e many devices", contender, many_devices((100, 10)), threads, device)
            for contender in (*variants(PFL), PLAIN)
        ],
        _many("e many devices, DP", "untrusted", threads, device),
        _many("e many devices, DP below trusted servers", "trusted", threads, device),
    ]
    depth = [
        Entry("f depth of the tree", OURS, many_devices(fanouts), threads, device)
        for fanouts in _DEPTHS
    ]
    cores = [
        [
            Entry(f"f cores: {work.name}", OURS, replace(work, rounds=10), cores, device)
            for cores in range(1, threads + 1)
        ]
        for work in COMPARED.values()
    ]
    whole = [
        [Entry(group, name, WHOLE, cores, device) for name in (OURS, TILES)]
        for cores, group in WHOLE_SHARDS.items()
        if cores <= threads
    ]
    scale = [
        _shared(group, works, threads if device == "cpu" else 1, device)
        for group, works in SCALE.items()
    ]
    # A race for each number of devices, since every entry on Ray starts a cluster.
    shared = [(OURS, threads), *((ON_RAY, nodes) for nodes in range(1, threads + 1))]
    on_ray = [
        [Entry(ON_A_CLUSTER, contender, work, count, device) for contender, count in shared]
        for work in SCALE[MINIBATCHES]
        if device == "cpu" and threads > 1
    ]
    return [*compared, _roofline(device), *many, depth, *cores, *whole, *scale, *on_ray]


def _peers(work: Work, threads: int, device: str) -> list[Entry]:
    contenders = (OURS, *variants(PFL), FLOWER, PLAIN)
    return [Entry(work.name, name, work, threads, device) for name in contenders]


def _roofline(device: str) -> list[Entry]:
    work = COMPARED["a linear"]
    return [Entry(ROOFLINE, name, work, 1, device) for name in (OURS, MATMULS)]


def _private_peers(work: Work, threads: int, device: str) -> list[Entry]:
    work = private(work, "untrusted")
    contenders = (OURS, *variants(OPACUS))
    return [Entry(f"{work.name}, DP", name, work, threads, device) for name in contenders]


def _many(group: str, privacy: str, threads: int, device: str) -> list[Entry]:
    return [
        Entry(group, OURS, many_devices(fanouts, privacy), threads, device)
        for fanouts in ((10, 10), (100, 10), (100, 100))
    ]


def _shared(group: str, works: Sequence[Work], most: int, device: str) -> list[Entry]:
    """The works one after the other, each shared by one process and by more."""
    return [
        Entry(group, OURS, work, count, device) for work in works for count in range(1, most + 1)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for all but Flower")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--only", default="", help="races whose first group begins with this")
    parser.add_argument("--rounds", type=int, help="fewer rounds, for a trial")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results, or results-cuda")
    options = parser.parse_args(arguments)
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: no CUDA device is available; use cpu")
    out = options.out or _FOLDER / ("results" if options.device == "cpu" else "results-cuda")
    start, results = time.monotonic(), []
    for entries in races(options.threads, options.device):
        group = entries[0].group
        if not group.startswith(options.only):
            continue
        if options.rounds:
            entries = [
                replace(entry, work=replace(entry.work, rounds=options.rounds)) for entry in entries
            ]
        began = time.monotonic()
        found = race(entries, out / "logs")
        if entries[-1].contender in (PLAIN, *variants(OPACUS)):
            alike = [entry for entry in entries if entry.work == entries[-1].work]
            apart = dict(zip(alike, distances(alike, out / "logs"), strict=True))
            found = [replace(of, apart=apart.get(of.entry)) for of in found]
        results += found
        print(f"{group}: {time.monotonic() - began:.0f} s", flush=True)
        # After every race, so that an interrupted run leaves what it has measured.
        write_report(out, results, judge(results), (time.monotonic() - start) / 60)
    for verdict in judge(results):
        mark = {True: "pass", False: "FAIL", None: "–"}[verdict.passed]
        print(f"{mark:5}{verdict.bar}: {verdict.found} (wanted {verdict.wanted})")
    print(f"Report: {out / 'report.md'}")


if __name__ == "__main__":
    main()
