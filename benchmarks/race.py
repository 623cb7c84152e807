"""Contenders side by side: each in its own process, taking turns round by round."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import psutil

from benchmarks.works import WARM_UP, Work, build_work_model, proof

# Peers' telemetry is off.
_SILENT = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_ROOT = Path(__file__).parents[1]
# Seconds for a start or a round; who needs more has failed.
_PATIENCE = 300


@dataclass(frozen=True)
class Entry:
    """One contender with one work, and what the table calls the comparison it belongs to."""

    group: str
    contender: str
    work: Work
    threads: int
    device: str = "cpu"

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "work": self.work.name,
            "privacy": self.work.privacy,
            "fanouts": "-".join(map(str, self.work.fanouts)),
            "devices": self.work.devices,
            "steps": self.work.local_steps,
            "contender": self.contender,
            "threads": self.threads,
            "device": self.device,
        }


@dataclass(frozen=True, eq=False)
class Result:
    """What one entry did.

    Attributes:
        entry: what was measured.
        ms: the timed rounds, in order; rounds of one position ran one after another.
        peak_mib: peak resident memory of its processes.
        accuracy: of the last global model on test records; None for what trains nothing.
        weights: the file of that model's weights (M,), or None likewise.
        apart: how far its weights end from m2fdp's where nothing is left to chance, over how far
            m2fdp's have moved (`distances`); None if that was not found out.
        profile: the operators of one more round, for m2fdp only.
        failure: the last line of its log if it ended early, else None.
    """

    entry: Entry
    ms: tuple[float, ...] = ()
    peak_mib: float | None = None
    accuracy: float | None = None
    weights: str | None = None
    apart: float | None = None
    profile: str | None = None
    failure: str | None = None


def race(entries: Sequence[Entry], logs: Path) -> list[Result]:
    """Time all entries in turn; who begins changes from turn to turn.

    A contender that fails leaves the race, and the others go on.

    Args:
        entries: with the same number of rounds.
        logs: the folder for what their processes print.
    """
    with TemporaryDirectory(prefix="ray") as folder:
        # Ray notes there which cluster is the machine's: each has its own.
        clusters = [str(Path(folder) / str(number)) for number in range(len(entries))]
        return _race(entries, logs, clusters)


def distances(entries: Sequence[Entry], logs: Path) -> list[float | None]:
    """How far each contender's weights end from the first one's, over how far the first one's have
    moved, after a work in which nothing is left to chance; None for who trains nothing or fails."""
    alike = [replace(entry, work=proof(entry.work)) for entry in entries]
    ends = [of.weights and np.load(of.weights) for of in race(alike, logs)]
    start = build_work_model(entries[0].work).initial_vector().numpy()
    first = ends[0]
    if first is None:
        return [None] * len(ends)
    moved = np.linalg.norm(first - start)
    return [None if end is None else float(np.linalg.norm(end - first) / moved) for end in ends]


def _race(entries: Sequence[Entry], logs: Path, clusters: Sequence[str]) -> list[Result]:
    processes = [
        _start(entry, logs, cluster) for entry, cluster in zip(entries, clusters, strict=True)
    ]
    try:
        running = {i for i, process in enumerate(processes) if _answer(process) is not None}
        times: list[list[float]] = [[] for _ in entries]
        for turn in range(entries[0].work.rounds):
            for i in _rotated(len(entries), turn):
                if i not in running:
                    continue
                reply = _ask(processes[i], "round")
                if reply is not None and turn >= WARM_UP:
                    # The first woke processor and process, which a wait puts to sleep.
                    reply = _ask(processes[i], "round")
                if reply is None:
                    running.discard(i)
                elif turn >= WARM_UP:
                    times[i].append(reply["ms"])
        return [
            _finish(entry, processes[i], tuple(times[i]), i in running, logs)
            for i, entry in enumerate(entries)
        ]
    finally:
        for process in processes:
            _end(process)


def _rotated(count: int, turn: int) -> list[int]:
    return [(i + turn) % count for i in range(count)]


def _start(entry: Entry, logs: Path, cluster: str) -> subprocess.Popen[str]:
    logs.mkdir(parents=True, exist_ok=True)
    specification = {
        "work": entry.work.to_json(),
        "contender": entry.contender,
        "threads": entry.threads,
        "device": entry.device,
        "weights": str(_log(entry, logs).with_suffix(".npy")),
    }
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | _SILENT
    threads = str(entry.threads)
    environment |= {"OMP_NUM_THREADS": threads, "PYTHONPATH": path, "RAY_TMPDIR": cluster}
    with _log(entry, logs).open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps(specification)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )


def _log(entry: Entry, logs: Path) -> Path:
    parts = [entry.group, entry.contender, entry.columns["fanouts"], f"{entry.threads}-threads"]
    return logs / ("_".join(parts).replace(" ", "-").replace(",", "") + ".log")


def _answer(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    answered, _, _ = select.select([process.stdout], [], [], _PATIENCE)
    line = process.stdout.readline() if answered else ""
    return json.loads(line) if line else None


def _ask(process: subprocess.Popen[str], command: str) -> dict[str, Any] | None:
    try:
        print(command, file=process.stdin, flush=True)
    except BrokenPipeError:
        return None
    return _answer(process)


def _finish(
    entry: Entry,
    process: subprocess.Popen[str],
    ms: tuple[float, ...],
    running: bool,
    logs: Path,
) -> Result:
    reply = _ask(process, "finish") if running else None
    if reply is None:
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return Result(entry, failure=f"no answer within {_PATIENCE} s")
        lines = _log(entry, logs).read_text().strip().splitlines()
        return Result(entry, failure=lines[-1] if lines else "ended without a word")
    return Result(entry, ms, **reply)


def _end(process: subprocess.Popen[str]) -> None:
    """End a contender's process and whatever it has started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in family:
        if child.is_running():
            child.kill()
    process.stdout.close()


def rounds_table(results: Sequence[Result]) -> pd.DataFrame:
    """One row a timed round: the entry's columns, turn and ms."""
    rows = [
        {**result.entry.columns, "turn": turn, "ms": ms}
        for result in results
        for turn, ms in enumerate(result.ms)
    ]
    return pd.DataFrame(rows)


def summary_table(results: Sequence[Result]) -> pd.DataFrame:
    """One row an entry: median and quartiles of ms, device-steps a second, memory, accuracy."""
    rows = []
    for result in results:
        low, median, high = quartiles(result.ms)
        steps = result.entry.work.devices * result.entry.work.local_steps
        rows.append(
            {
                **result.entry.columns,
                "ms": median,
                "ms_low": low,
                "ms_high": high,
                "device_steps_per_s": 1000 * steps / median,
                "peak_mib": result.peak_mib,
                "accuracy": result.accuracy,
                "apart": result.apart,
                "failure": result.failure,
            }
        )
    return pd.DataFrame(rows)


def quartiles(ms: tuple[float, ...]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    low, median, high = pd.Series(ms, dtype=float).quantile([0.25, 0.5, 0.75])
    return low, median, high
