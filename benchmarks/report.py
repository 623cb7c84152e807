"""The results as Markdown, CSV and a figure."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.bars import Verdict, device_step_us, paired_ratio
from benchmarks.contenders import OURS, sharing
from benchmarks.race import Entry, Result, quartiles, rounds_table, summary_table

_PACKAGES = ("torch", "numpy", "opacus", "pfl", "flwr", "ray")
_OURS_COLOUR, _PEER_COLOUR, _GRID = "#0072B2", "#999999", "#DDDDDD"


def write_report(
    folder: Path, results: Sequence[Result], verdicts: Sequence[Verdict], minutes: float
) -> None:
    """Write report.md, results.csv, rounds.csv and benchmarks.png into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    table = summary_table(results)
    table.to_csv(folder / "results.csv", index=False, float_format="%.6g")
    rounds_table(results).to_csv(folder / "rounds.csv", index=False, float_format="%.6g")
    _figure(results, table).savefig(folder / "benchmarks.png", dpi=150)
    parts = [
        "# Benchmarks",
        f"Written by `make bench` in {minutes:.0f} minutes. What was compared, and how: "
        "[README.md](../README.md). Times are medians of a round in ms with their quartiles.",
        _machine(),
        "## Bars",
        _markdown(["bar", "wanted", "found", ""], [_verdict_row(verdict) for verdict in verdicts]),
        "![Milliseconds a round, the cost of a device-step, and how a run scales](benchmarks.png)",
        *_group_tables(results, table),
        *_profiles(results, verdicts),
    ]
    (folder / "report.md").write_text("\n\n".join(parts) + "\n")


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    versions = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    return (
        f"Machine: {_processor()}, {cores} cores, {memory:.0f} GiB, GPU: {gpu}, "
        f"{platform.system()} {platform.release()}. Python {platform.python_version()}, {versions}."
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # m2fdp alone needs none of the peers
        return "not installed"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _verdict_row(verdict: Verdict) -> list[str]:
    mark = {True: "pass", False: "**fail**", None: "–"}[verdict.passed]
    return [verdict.bar, verdict.wanted, verdict.found, mark]


def _group_tables(results: Sequence[Result], table: pd.DataFrame) -> list[str]:
    heads = ["contender", "tree", "threads", "ms a round", "device-steps a second"]
    heads += ["peak MiB", "accuracy"]
    parts = []
    for group, rows in table.groupby("group", sort=False):
        parts.append(f"## {group}")
        if group.startswith("h "):
            parts.append(_scale_table([each for each in results if each.entry.group == group]))
        else:
            parts.append(_markdown(heads, [_entry_row(row) for _, row in rows.iterrows()]))
    return parts


def _scale_table(results: Sequence[Result]) -> str:
    """One row a number of devices and way to share a run, next to one process of m2fdp."""
    heads = ["devices", "shared by", "s a round", "times one process", "µs a device-step"]
    heads += ["peak GiB", "accuracy"]
    alone = {
        result.entry.work: result for result in results if _way(result.entry) == sharing(OURS, 1)
    }
    return _markdown(heads, [_scale_row(each, alone.get(each.entry.work)) for each in results])


def _scale_row(result: Result, alone: Result | None) -> list[str]:
    names = [f"{result.entry.work.devices:,}", _way(result.entry)]
    if result.failure is not None:
        return [*names, result.failure.replace("|", "/"), "–", "–", "–", "–"]
    low, median, high = (ms / 1000 for ms in quartiles(result.ms))
    faster = "–"
    if alone is not None and alone is not result and alone.ms:
        faster = "{1:.2f} ({0:.2f} to {2:.2f})".format(*paired_ratio(alone, result))
    return [
        *names,
        f"{median:.3g} ({low:.3g} to {high:.3g})",
        faster,
        f"{device_step_us(result):.2f}",
        f"{result.peak_mib / 1024:.2f}",
        f"{result.accuracy:.3f}",
    ]


def _way(entry: Entry) -> str:
    return sharing(entry.contender, entry.threads)


def _entry_row(row: pd.Series) -> list[str]:
    if row["failure"] is not None and not pd.isna(row["failure"]):
        failure = str(row["failure"]).replace("|", "/")
        return [row["contender"], row["fanouts"], str(row["threads"]), failure, "–", "–", "–"]
    return [
        row["contender"],
        row["fanouts"],
        str(row["threads"]),
        f"{row['ms']:.4g} ({row['ms_low']:.4g} to {row['ms_high']:.4g})",
        f"{row['device_steps_per_s']:,.0f}",
        f"{row['peak_mib']:,.0f}",
        "–" if pd.isna(row["accuracy"]) else f"{row['accuracy']:.3f}",
    ]


def _profiles(results: Sequence[Result], verdicts: Sequence[Verdict]) -> list[str]:
    """m2fdp's operators in the groups in which a bar is missed; of a run that is shared in several
    ways, those of one process."""
    missed = list(dict.fromkeys(verdict.group for verdict in verdicts if verdict.passed is False))
    parts = ["## Profiles where a bar is missed"] if missed else []
    for group in missed:
        for result in results:
            if result.entry.group != group or not result.profile:
                continue
            if not group.startswith("h ") or result.entry.threads == 1:
                title = f"{group}, {result.entry.work.devices:,} devices"
                parts.append(f"{title}:\n\n```\n{result.profile}\n```")
    return parts


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _figure(results: Sequence[Result], table: pd.DataFrame) -> Figure:
    compared = [group for group in table["group"].unique() if group[:1] in "abcdg"]
    many = [
        result
        for result in results
        if result.entry.group.startswith("e ") and result.entry.contender == OURS and result.ms
    ]
    scale = {
        group: [each for each in results if each.entry.group == group and each.ms]
        for group in table["group"].unique()
        if group.startswith("h ")
    }
    height = max(1, (len(compared) + bool(many) + len(scale) + 1) // 2)
    figure = Figure(figsize=(11, 2.6 * height), layout="constrained")
    axes = figure.subplots(height, 2, squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    for axis, group in zip(axes.flat, compared, strict=False):
        _bars(axis, group, table[(table["group"] == group) & table["failure"].isna()])
    if many:
        _scaling(axes.flat[len(compared)], many)
    for axis, (group, shared) in zip(
        axes.flat[len(compared) + bool(many) :], scale.items(), strict=False
    ):
        _sharing(axis, group, shared)
    return figure


def _bars(axis, group: str, rows: pd.DataFrame) -> None:
    axis.set_visible(True)
    rows = rows[::-1]
    colours = [_OURS_COLOUR if name == OURS else _PEER_COLOUR for name in rows["contender"]]
    names = [name.replace(", ", ",\n") for name in rows["contender"]]
    bars = axis.barh(names, rows["ms"], color=colours)
    labels = [f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}" for ms in rows["ms"]]
    axis.bar_label(bars, labels, padding=3, fontsize=7)
    axis.margins(x=0.2)
    axis.set_title(group, fontsize=9)
    axis.set_xlabel("ms a round", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(axis="x", color=_GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _scaling(axis, many: Sequence[Result]) -> None:
    axis.set_visible(True)
    for group in dict.fromkeys(result.entry.group for result in many):
        own = sorted(
            (result.entry.work.devices, device_step_us(result))
            for result in many
            if result.entry.group == group
        )
        axis.plot(*zip(*own, strict=True), marker="o", label=group)
    axis.set_ylim(bottom=0)
    _over_devices(axis, "m2fdp over the number of devices", "µs a device-step")


def _sharing(axis, group: str, results: Sequence[Result]) -> None:
    axis.set_visible(True)
    for way in dict.fromkeys(_way(result.entry) for result in results):
        own = sorted(
            (result.entry.work.devices, quartiles(result.ms)[1] / 1000)
            for result in results
            if _way(result.entry) == way
        )
        axis.plot(*zip(*own, strict=True), marker="o", label=way)
    axis.set_yscale("log")
    _over_devices(axis, group, "s a round")


def _over_devices(axis, title: str, unit: str) -> None:
    axis.set_xscale("log")
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("devices", fontsize=8)
    axis.set_ylabel(unit, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(color=_GRID, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7)
