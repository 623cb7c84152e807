"""Figures of many runs in a layout that a study's file declares, such as a paper's."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from m2fdp.claims.declared import DELAY, LOSS, OVER_A_RUN, ROUND, Layout
from m2fdp.claims.measures import MEASURES
from m2fdp.core.formatting import counted
from m2fdp.reporting import style
from m2fdp.reporting.panels import Content, panel_contents
from m2fdp.reporting.seeds import (
    INTERVAL,
    Dot,
    draw_band,
    draw_dots,
    legend_below,
    over_seeds,
    row_height,
    summary_of,
)

_PANEL_HEIGHT = 3.3
_PANEL_WIDTHS = (6.0, 4.8, 3.8)  # inches, in figures of one, two and more columns
_CHARACTER = 0.085  # inches of a title's character, about
_NAME = 28  # characters of a line of a category's name
_ROW_POINTS = 10  # of a line of small text
_SMALL = style.TICK_SIZE - 1
_MOST_TICKS = 8
_LEAST_GAP = 0.08  # between ticks, as a share of the values' span
_MARGIN = 0.05  # on either side of it


def draw(
    layout: Layout, measured: pd.DataFrame, history: pd.DataFrame, labels: Mapping[str, str]
) -> Figure:
    """The figure; it saves to the same bytes always, whatever the order of the rows.

    Means over seeds: of lines in a band or with error bars of one sample standard deviation, of
    categories as dots in Student's interval. Where some runs lack the measure, as those that never
    reach the target, the mean is that of the others, and the panel says how many they are. A line
    that several panels share looks the same in all. The other arguments, and the errors, are those
    of `m2fdp.reporting.panels.panel_contents`.

    Args:
        history: one row a run and evaluated round, of `m2fdp.studies.tracked_runs.load_history`.
    """
    contents = [_with_rounds(each, history) for each in panel_contents(layout, measured, labels)]
    looks = _looks(contents)
    seeds = set().union(*(line.seeds for content in contents for line in content.lines))
    columns = min(layout.columns, len(contents))
    width = _PANEL_WIDTHS[min(columns, len(_PANEL_WIDTHS)) - 1]
    in_rows = [contents[i : i + columns] for i in range(0, len(contents), columns)]
    heights = [max(map(_height, row)) for row in in_rows]
    figure = style.new_figure(width * columns, sum(heights))
    subplots = figure.subplots(len(in_rows), columns, squeeze=False, height_ratios=heights)
    grid = list(subplots.flat)
    for axes in grid[len(contents) :]:
        axes.remove()
    panels = list(zip(grid, contents, strict=False))
    for number, (axes, content) in enumerate(panels):
        style.title(axes, textwrap.fill(content.panel.title, int((width - 0.8) / _CHARACTER)))
        if content.categories and not content.lack:
            beside = contents[number - 1].categories if number % columns else ()
            _draw_categories(
                axes, content, looks, tell_seeds=len(seeds) > 1, named=beside != content.categories
            )
        else:
            _draw_panel(axes, content, history, looks)
    _align(panels)
    _add_legend(figure, panels, list(looks), seeds)
    return figure


def _with_rounds(content: Content, history: pd.DataFrame) -> Content:
    """What can be drawn: records of before lack the rounds of a curve that a study shows now."""
    drawn = content.panel.x not in OVER_A_RUN or content.panel.y in history
    return content if drawn else replace(content, lines=())


def _height(content: Content) -> float:
    """Inches of a panel."""
    if content.lack or not content.categories:
        return _PANEL_HEIGHT
    side_by_side = 1 if content.names_itself else len(content.lines)
    rows = [max(side_by_side, len(_in_lines(name))) for name in content.categories]
    return row_height(sum(rows) + len(rows) / 2)


def _in_lines(name: str) -> list[str]:
    """A category's name; lists stay in one line."""
    return [name] if name.startswith("[") else textwrap.wrap(name, _NAME) or [name]


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
    axes: Axes, content: Content, history: pd.DataFrame, looks: Mapping[str, style.Look]
) -> None:
    """A panel whose x has numbers, or one of which there is nothing to draw."""
    panel = content.panel
    style.tidy(axes, content.x_label, MEASURES[panel.y].label, whole_x=panel.x == ROUND)
    if content.lack:
        axes.set(xticks=[], yticks=[])
        grey, axes_points = style.COLOURS[0], axes.transAxes
        style.write(axes, 0.5, 0.5, content.lack, style.LABEL_SIZE, grey, transform=axes_points)
        return
    if panel.x in OVER_A_RUN:
        for line in content.lines:
            rounds = history[history["run_id"].isin(line.run_ids)]
            means = over_seeds(rounds, panel.y)
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
        label, bars = line.label, points["std"]
        axes.errorbar(points.index, points["mean"], bars, capsize=3, label=label, **look.of_lines)
        lacking = points[points["measured"] < points["seeds"]]
        for x, point in lacking.iterrows():
            note, height = f"{point['measured']:.0f} of {point['seeds']:.0f}", 2 + _ROW_POINTS * row
            text = {"ha": "center", "color": look.colour, "fontsize": _SMALL}
            style.note(axes, note, (x, 0), (0, height), axes.get_xaxis_transform(), **text)
        row += len(lacking) > 0


def _draw_categories(
    axes: Axes, content: Content, looks: Mapping[str, style.Look], *, tell_seeds: bool, named: bool
) -> None:
    """A row a category, with a dot for each of its lines."""
    n_dots = 1 if content.names_itself else len(content.lines)
    dots = []
    for number, line in enumerate(content.lines):
        below = 0.0 if content.names_itself else 0.8 * ((number + 0.5) / n_dots - 0.5)
        for x, point in line.points.iterrows():
            measured, seeds = f"{point['measured']:.0f}", f"{point['seeds']:.0f}"
            note = f"n = {seeds}" if tell_seeds else ""
            if measured != seeds:
                note = f"{measured} of {seeds}"
            place = content.categories.index(str(x)) + below
            dots.append(Dot(place, line.label, summary_of(point), looks[line.label], note))
    style.tidy(axes, "", content.x_label if named else "")
    names = ["\n".join(_in_lines(name)) if named else "" for name in content.categories]
    draw_dots(axes, dots, names, content.panel.y)


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


def _align(panels: Sequence[tuple[Axes, Content]]) -> None:
    """One scale for all panels of lines that show the same, with room for their notes.

    Accuracies over rounds and final ones differ too much to share one, and so do losses, which
    have no upper end, of any two panels.
    """
    kinds: dict[tuple[str, bool, int], list[Axes]] = {}
    for number, (axes, content) in enumerate(panels):
        if not content.lack and not content.categories:
            panel = content.panel
            kind = (panel.y, panel.x in OVER_A_RUN, number if panel.y == LOSS else 0)
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


def _add_legend(
    figure: Figure, panels: Sequence[tuple[Axes, Content]], order: Sequence[str], seeds: set[int]
) -> None:
    """All panels' lines below the figure, in an order, with the seeds that they have."""
    drawn = [panel for panel in panels if not panel[1].lack]
    note = _note_of_seeds(seeds, {bool(content.categories) for _, content in drawn}) or None
    handles: dict[str, Artist] = {}
    of_labels: dict[str, set[int]] = {}
    for axes, content in sorted(drawn, key=lambda panel: bool(panel[1].categories)):
        if not content.names_itself:
            of_axes = axes.get_legend_handles_labels()
            handles = dict(zip(*reversed(of_axes), strict=True)) | handles
            for line in content.lines:
                of_labels.setdefault(line.label, set()).update(line.seeds)
    labels = [label for label in order if label in handles]
    if labels:
        texts = [_with_seeds(label, of_labels[label], len(seeds) > 1) for label in labels]
        legend_below(figure, [handles[label] for label in labels], texts, title=note)
    elif note:
        figure.supxlabel(note, fontsize=style.TICK_SIZE, color=style.INK)


def _with_seeds(label: str, seeds: set[int], tell: bool) -> str:
    """A line's label, and how many seeds it has where these differ."""
    numbers = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"{label} (n = {numbers})" if tell else label


def _note_of_seeds(seeds: set[int], of_dots: set[bool]) -> str:
    """How many they are if all lines have as many, and what lines and dots show of several."""
    several = max(seeds, default=0) > 1
    notes = [f"n = {counted(n, 'seed')}" for n in seeds if len(seeds) == 1]
    if several and False in of_dots and notes:
        notes.append("mean ± std")
    if several and True in of_dots:
        notes.append(f"dots: {INTERVAL}")
    return ", ".join(notes)
