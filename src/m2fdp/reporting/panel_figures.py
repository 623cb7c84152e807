"""Figures of many runs in a layout that a study's file declares, such as a paper's."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation

from m2fdp.claims.measures import MEASURES
from m2fdp.formatting import counted
from m2fdp.reporting import style
from m2fdp.reporting.panels import DELAY, OVER_A_RUN, ROUND, Content, Layout, panel_contents
from m2fdp.reporting.seeds import draw_band, legend_below, legend_columns, over_seeds

_PANEL_HEIGHT = 3.3
_PANEL_WIDTHS = (6.0, 4.8, 3.8)  # inches, in figures of one, two and more columns
_CHARACTER = 0.085  # inches of a title's character, about
_ROW_POINTS = 10  # of a line of small text
_SMALL = style.TICK_SIZE - 1
_HATCHES = ("", "//", "..", "xx")
_MOST_TICKS = 8
_LEAST_GAP = 0.08  # between ticks, as a share of the values' span
_MARGIN = 0.05  # on either side of it


def draw(
    layout: Layout, measured: pd.DataFrame, history: pd.DataFrame, labels: Mapping[str, str]
) -> Figure:
    """The figure; it saves to the same bytes always, whatever the order of the rows.

    Means over seeds, in a band or with error bars of one sample standard deviation. Where some
    runs lack the measure, as those that never reach the target, the mean is that of the others,
    and the panel says how many they are. A line that several panels share looks the same in all.
    The other arguments, and the errors, are those of `m2fdp.reporting.panels.panel_contents`.

    Args:
        history: one row a run and evaluated round, of `m2fdp.studies.tracked_runs.load_history`.
    """
    contents = panel_contents(layout, measured, labels)
    looks = _looks(contents)
    seeds = set().union(*(line.seeds for content in contents for line in content.lines))
    columns = min(layout.columns, len(contents))
    rows = -(-len(contents) // columns)
    width = _PANEL_WIDTHS[min(columns, len(_PANEL_WIDTHS)) - 1]
    figure = style.new_figure(width * columns, _PANEL_HEIGHT * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[len(contents) :]:
        axes.remove()
    panels = list(zip(grid, contents, strict=False))
    for axes, content in panels:
        _draw_panel(axes, content, history, looks, width, tell_seeds=len(seeds) > 1)
    _align(panels)
    _add_legends(figure, panels, rows, seeds)
    return figure


def _looks(contents: Sequence[Content]) -> dict[str, style.Look]:
    """A look for each line of a figure, by label; an algorithm keeps its colour if it can.

    It can where every line has one algorithm and not all have the same.
    """
    algorithms: dict[str, frozenset[str]] = {}
    for line in sorted(
        (line for content in contents for line in content.lines),
        key=lambda line: (line.order, line.label),
    ):
        algorithms[line.label] = algorithms.get(line.label, frozenset()) | line.algorithms
    one_each = all(len(names) == 1 for names in algorithms.values())
    if one_each and len(set(algorithms.values())) > 1:
        singles = [next(iter(names)) for names in algorithms.values()]
        return {
            label: style.look(name, singles[:number].count(name))
            for number, (label, name) in enumerate(zip(algorithms, singles, strict=True))
        }
    return {label: style.palette_look(number) for number, label in enumerate(algorithms)}


def _draw_panel(
    axes: Axes,
    content: Content,
    history: pd.DataFrame,
    looks: Mapping[str, style.Look],
    width: float,
    *,
    tell_seeds: bool,
) -> None:
    panel = content.panel
    style.tidy(axes, content.x_label, MEASURES[panel.y].label, whole_x=panel.x == ROUND)
    style.title(axes, textwrap.fill(panel.title, int((width - 0.8) / _CHARACTER)))
    if content.lack:
        axes.set(xticks=[], yticks=[])
        grey, axes_points = style.COLOURS[0], axes.transAxes
        style.write(axes, 0.5, 0.5, content.lack, style.LABEL_SIZE, grey, transform=axes_points)
        return
    if content.categories:
        _draw_bars(axes, content, looks, width, tell_seeds)
    elif panel.x in OVER_A_RUN:
        for line in content.lines:
            rounds = history[history["run_id"].isin(line.run_ids)]
            means = over_seeds(rounds)
            number = list(looks).index(line.label)
            x = means["round"]
            if panel.x == DELAY:  # a round's seconds differ a little between seeds
                x = x.map(rounds.groupby("round")[DELAY].mean())
            draw_band(axes, x, means, looks[line.label], number, line.label)
    else:
        _draw_points(axes, content, looks)
        _fit_values(axes, content)
    if panel.log_x and panel.x in OVER_A_RUN:
        axes.set_xscale("log")


def _draw_points(axes: Axes, content: Content, looks: Mapping[str, style.Look]) -> None:
    """Means with error bars, connected; where seeds lack the measure, how many have it."""
    row = 0
    for line in content.lines:
        look, points = looks[line.label], line.points
        axes.errorbar(
            points.index,
            points["mean"],
            yerr=points["std"],
            color=look.colour,
            linestyle=look.line,
            linewidth=1.8,
            marker=look.marker,
            markersize=5,
            capsize=3,
            label=line.label,
        )
        lacking = points[points["measured"] < points["seeds"]]
        for x, point in lacking.iterrows():
            note = f"{point['measured']:.0f} of {point['seeds']:.0f}"
            height = 2 + _ROW_POINTS * row
            _note(axes, note, (x, 0), height, look.colour, xycoords=axes.get_xaxis_transform())
        row += len(lacking) > 0


def _draw_bars(
    axes: Axes,
    content: Content,
    looks: Mapping[str, style.Look],
    width: float,
    tell_seeds: bool,
) -> None:
    """Means with error bars, side by side where a category has several lines."""
    n_groups = 1 if content.names_itself else len(content.lines)
    bar = 0.8 / n_groups
    for number, line in enumerate(content.lines):
        look = looks[line.label]
        of_colour = [label for label in looks if looks[label].colour == look.colour]
        group = 0 if content.names_itself else number
        places = [
            content.categories.index(x) + (group - (n_groups - 1) / 2) * bar
            for x in line.points.index
        ]
        endless = np.isinf(line.points["mean"])
        heights = line.points["mean"].mask(endless).fillna(0)
        axes.bar(
            places,
            heights,
            bar * 0.9,
            yerr=line.points["std"],
            color=look.colour,
            edgecolor="white",
            hatch=_HATCHES[of_colour.index(line.label) % len(_HATCHES)],
            capsize=3,
            ecolor=style.INK,
            label=line.label,
        )
        tops = heights + line.points["std"].fillna(0)
        counts = (line.points["measured"], line.points["seeds"])
        for place, top, measured, seeds, infinite in zip(
            places, tops, *counts, endless, strict=True
        ):
            if infinite:
                note = "∞"
            elif measured < seeds:
                note = f"{measured} of {seeds}"
            elif tell_seeds:
                note = f"n = {seeds}"
            else:
                continue
            _note(axes, note, (place, top), 3, style.INK)
    _name_categories(axes, content.categories, width)
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")


def _note(
    axes: Axes, text: str, point: tuple[Any, float], points: float, colour: str, **options: Any
) -> None:
    """A small text so many points above a point."""
    axes.annotate(
        text,
        point,
        xytext=(0, points),
        textcoords="offset points",
        ha="center",
        color=colour,
        fontsize=_SMALL,
        **options,
    )


def _fit_values(axes: Axes, content: Content) -> None:
    """An axis of all values of x, measured or not; ticks at them if they are few and far apart."""
    values = sorted({float(x) for line in content.lines for x in line.points.index})
    places = np.array(values)
    if content.panel.log_x:
        axes.set_xscale("log")
        places = np.log(places)
    if len(values) > 1:
        margin = _MARGIN * np.ptp(places)
        limits = np.array([places[0] - margin, places[-1] + margin])
        axes.set_xlim(*(np.exp(limits) if content.panel.log_x else limits))
    gap = _LEAST_GAP * np.ptp(places)
    if len(values) <= _MOST_TICKS and (np.diff(places) >= gap).all():
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.xaxis.set_minor_locator(NullLocator())


def _name_categories(axes: Axes, categories: Sequence[str], width: float) -> None:
    """Names below their bars: in lines of the bar's width, or slanted where a word is wider."""
    characters = int((width - 0.9) / len(categories) / _CHARACTER)
    # Lists stay in one line.
    names = [name.replace(" ", "\xa0") if name.startswith("[") else name for name in categories]
    words = [word for name in names for word in re.split("[ -]", name)]
    places = range(len(names))
    if max(map(len, words)) <= characters:
        axes.set_xticks(places, [textwrap.fill(name, characters) for name in names])
    else:
        axes.set_xticks(places, names, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.6, len(categories) - 0.4)


def _align(panels: Sequence[tuple[Axes, Content]]) -> None:
    """One scale for all panels of lines that show the same, with room for their notes.

    Accuracies over rounds and final ones differ too much to share one.
    """
    kinds: dict[tuple[str, bool], list[Axes]] = {}
    for axes, content in panels:
        if not content.lack and not content.categories:
            kind = (content.panel.y, content.panel.x in OVER_A_RUN)
            kinds.setdefault(kind, []).append(axes)
    for group in kinds.values():
        low = min(axes.get_ylim()[0] for axes in group)
        high = max(axes.get_ylim()[1] for axes in group)
        margin = _MARGIN * (high - low)  # no marker is cut off in a panel of lesser span
        low = min(low, *(axes.dataLim.y0 - margin for axes in group))
        high = max(high, *(axes.dataLim.y1 + margin for axes in group))
        notes = max(
            len({text.xyann[1] for text in axes.texts if hasattr(text, "xyann")}) for axes in group
        )
        for axes in group:
            axes.set_ylim(low - 0.07 * notes * (high - low), high)


def _add_legends(
    figure: Figure, panels: Sequence[tuple[Axes, Content]], rows: int, seeds: set[int]
) -> None:
    """Below the figure if one panel has all lines, else below each; and how many seeds."""
    note = None
    if len(seeds) == 1:
        (n,) = seeds
        note = f"n = {counted(n, 'seed')}"
        if n > 1:
            note += ", mean ± std"
    named = [
        (axes, content) for axes, content in panels if not content.lack and not content.names_itself
    ]
    every = set().union(*(content.labels for _, content in named))
    full = [axes for axes, content in named if content.labels == every]
    if full:
        contents = [content for _, content in named]
        legend_below(figure, *_entries(full[0], contents, note is None), title=note)
        return
    if note:
        figure.supxlabel(note, fontsize=style.TICK_SIZE, color=style.INK)
    if named:
        _add_own_legends(figure, named, rows, note is None)


def _add_own_legends(
    figure: Figure, named: Sequence[tuple[Axes, Content]], rows: int, tell_seeds: bool
) -> None:
    """Below each panel's axis label, wherever that is."""
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    n_rows = 0
    for axes, content in named:
        handles, labels = _entries(axes, [content], tell_seeds)
        columns = legend_columns(labels, axes.bbox.width / figure.dpi)
        n_rows = max(n_rows, -(-len(labels) // columns))
        labelled = axes.xaxis.get_tightbbox() or axes.bbox
        depth = (axes.bbox.y0 - labelled.y0) / figure.dpi
        axes.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=axes.transAxes + ScaledTranslation(0, -depth, figure.dpi_scale_trans),
            ncols=columns,
            fontsize=style.TICK_SIZE,
            frameon=False,
            handlelength=3.2,
        )
    figure.set_size_inches(width, height + 0.25 * n_rows * rows)


def _entries(axes: Axes, contents: Sequence[Content], tell_seeds: bool) -> tuple[list, list[str]]:
    """Handles and labels of a panel's lines, with the seeds that they have in the panels."""
    handles, labels = axes.get_legend_handles_labels()
    if not tell_seeds:
        return handles, labels
    texts = []
    for label in labels:
        seeds = set().union(
            *(line.seeds for content in contents for line in content.lines if line.label == label)
        )
        numbers = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        texts.append(f"{label} (n = {numbers})")
    return handles, texts
