"""Figures of many runs in a layout that a study's file declares, such as a paper's: means over
seeds as lines in bands, or as dots in Student's intervals."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from m2fdp.claims.declared import DELAY, LOSS, OVER_A_RUN, ROUND, Layout
from m2fdp.claims.intervals import LEVEL, Summary
from m2fdp.claims.measures import MEASURES
from m2fdp.core.formatting import counted
from m2fdp.core.metrics import ACCURACY, ENERGY
from m2fdp.reporting import style
from m2fdp.reporting.panels import Content, panel_contents
from m2fdp.reporting.tables import refuse_twice, written

INTERVAL = f"mean and {LEVEL:.0%} interval".replace("%", " %")
_DECADES = 30  # of the largest mean over the least: an axis of such values is logarithmic
_PANEL_HEIGHT = 3.3
_PANEL_WIDTHS = (6.0, 4.8, 3.8)  # inches, in figures of one, two and more columns
_CHARACTER = 0.085  # inches of a title's character, about
_NAME = 28  # characters of a line of a category's name
_ROW_POINTS = 10  # of a line of small text
_SMALL = style.TICK_SIZE - 1
_MOST_TICKS = 8
_LEAST_GAP = 0.08  # between ticks, as a share of the values' span
_MARGIN = 0.05  # on either side of it
_MARGIN_OF_DOTS = 0.06  # the same


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
            named = beside != content.categories
            _draw_categories(axes, content, looks, tell_seeds=len(seeds) > 1, named=named)
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
    algorithms: dict[str, set[str]] = {}
    lines = (line for content in contents for line in content.lines)
    for line in sorted(lines, key=lambda line: (line.order, line.label)):
        algorithms.setdefault(line.label, set()).update(line.algorithms)
    names = ["".join(of_line) for of_line in algorithms.values() if len(of_line) == 1]
    if len(names) < len(algorithms) or len(set(names)) < 2:
        return {label: style.palette_look(number) for number, label in enumerate(algorithms)}
    return {
        label: style.look(name, names[:number].count(name))
        for number, (label, name) in enumerate(zip(algorithms, names, strict=True))
    }


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
            number, x = list(looks).index(line.label), means["round"]
            if panel.x == DELAY:  # a round's seconds differ a little between seeds
                x = x.map(rounds.groupby("round")[DELAY].mean())
            draw_band(axes, x, means, looks[line.label], number, line.label)
    else:
        _draw_points(axes, content, looks)
        _fit_values(axes, content)


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
            summary = Summary(point["mean"], point["std"], int(point["measured"]))
            dots.append(Dot(place, line.label, summary, looks[line.label], note))
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


def over_seeds(history: pd.DataFrame, measure: str = ACCURACY.name) -> pd.DataFrame:
    """A measure and the energy by round, means of the rounds that all seeds evaluated.

    Args:
        history: one row a seed and evaluated round.

    Returns:
        round, mean, the energy and std, the measure's sample standard deviation (NaN for one seed).
    """
    refuse_twice("history", history, ["seed", "round"], "{algorithm}, seed {seed}, round {round}")
    # Sorted, so that sums do not depend on the order of the rows.
    groups = history.sort_values("seed").groupby("round")
    values = groups[measure]
    energy = {ENERGY.name: groups[ENERGY.name].mean()}
    means = pd.DataFrame({"mean": values.mean(), **energy, "std": values.std()})
    return means[groups.size() == history["seed"].nunique()].reset_index()


def draw_band(
    axes: Axes, x: pd.Series, means: pd.DataFrame, look: style.Look, number: int, label: str
) -> None:
    """A line of means in a band of one standard deviation."""
    step = max(1, len(means) // 8)
    # Staggered, so that lines that coincide show both their markers.
    axes.plot(x, means["mean"], label=label, markevery=(number % step, step), **look.of_lines)
    if means["std"].notna().any():
        low, high = means["mean"] - means["std"], means["mean"] + means["std"]
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def legend_below(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], title: str | None = None
) -> None:
    """One legend of all panels, in as many columns as fit; the figure grows by its rows."""
    width, height = figure.get_size_inches()
    widest = max(map(len, labels))
    columns = min(len(labels), max(1, int(width / (0.7 + 0.075 * widest))))
    rows = -(-len(labels) // columns) + (title is not None)
    figure.set_size_inches(width, height + 0.25 * rows)
    look = {"title": title, "title_fontsize": style.TICK_SIZE, "handlelength": 3.2}
    style.legend_below(figure, (handles, labels), columns, **look)


@dataclass(frozen=True)
class Dot:
    """One row of the comparison, or one of several in a row."""

    place: float  # from above: row 0 is the first
    label: str  # in a legend
    summary: Summary
    look: style.Look
    note: str = ""  # behind the number

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean; the mean alone where the seeds tell none."""
        low, high = self.summary.interval()
        return (low, high) if math.isfinite(low + high) else (self.summary.mean, self.summary.mean)


def draw_dots(axes: Axes, dots: Sequence[Dot], names: Sequence[str], measure: str) -> None:
    """Dots in rows below each other; an infinite one is a number only, as is one that is NaN.

    Args:
        names: the rows' names, from above; "" where a panel beside this one names them.
    """
    drawn = [dot for dot in dots if math.isfinite(dot.summary.mean)]
    for label in dict.fromkeys(dot.label for dot in dots):
        of_label = [dot for dot in drawn if dot.label == label]
        if not of_label:
            continue
        means = np.array([dot.summary.mean for dot in of_label])
        low, high = np.array([dot.interval for dot in of_label]).T
        axes.errorbar(
            means,
            [dot.place for dot in of_label],
            xerr=[means - low, high - means],
            label=label,
            capsize=3,
            **of_label[0].look.of_lines | {"linestyle": "none", "markersize": 5.5},
        )
    look = {"va": "center", "color": style.INK, "fontsize": style.TICK_SIZE}
    for dot in dots:
        number = written(measure, dot.summary.mean)
        text = number if not dot.note else f"{number} ({dot.note})"
        style.note(axes, text, (1, dot.place), (8, 0), axes.get_yaxis_transform(), **look)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _fit_dots(axes, drawn, share=MEASURES[measure].share)
    axes.set_xlabel(MEASURES[measure].label, fontsize=style.LABEL_SIZE, color=style.INK)


def _fit_dots(axes: Axes, dots: Sequence[Dot], *, share: bool) -> None:
    """An axis of the values and, as far as they leave them to be seen, of their intervals."""
    means = np.array([dot.summary.mean for dot in dots] or [0.0, 1.0])
    spread = np.nan_to_num([dot.summary.std for dot in dots] or [0.0, 0.0])
    ends = np.array([dot.interval for dot in dots] or [(0.0, 1.0)])
    if 0 < means.min() * _DECADES <= means.max() and ends.min() > 0:
        axes.set_xscale("log")
        style.plain_log(axes.xaxis)
        axes.margins(x=_MARGIN_OF_DOTS)
        return
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    # Two seeds have an interval of nine deviations to either side.
    low, high = (means - spread).min(), (means + spread).max()
    reach = high - low
    low, high = max(ends.min(), low - reach), min(ends.max(), high + reach)
    if share:
        low, high = max(low, 0.0), min(high, 1.0)
    if high > low:
        margin = _MARGIN_OF_DOTS * (high - low)
        axes.set_xlim(low - margin, high + margin)


def row_height(rows: float) -> float:
    """Inches of a panel of so many rows of text, with its title and its axis."""
    return 0.9 + 0.2 * rows
