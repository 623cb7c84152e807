"""Figures of many runs in a layout that a study's file declares, such as a paper's."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation
from pydantic import Field

from m2fdp.algorithms import get_algorithm
from m2fdp.config import Block
from m2fdp.errors import InputError
from m2fdp.reporting import style
from m2fdp.reporting.measures import MEASURES, check_measure, comparable, select_runs
from m2fdp.reporting.seeds import draw_band, legend_below, legend_columns, over_seeds
from m2fdp.reporting.tables import RUN_COLUMNS

ROUND = "round"  # as x: accuracy over the rounds
# Columns that every frame of runs has and that tell runs apart.
_ALWAYS = ("algorithm", "seed")
_NAMES = ("algorithm", *style.TAGS)  # never numbers
_PANEL_HEIGHT = 3.3
_PANEL_WIDTHS = (6.0, 4.8, 3.8)  # inches, in figures of one, two and more columns
_CHARACTER = 0.085  # inches of a title's character, about
_ROW_POINTS = 10  # of a line of small text
_X, _LINE = "_x", "_line"  # columns of a panel's runs
_SMALL = style.TICK_SIZE - 1
_HATCHES = ("", "//", "..", "xx")
_MOST_TICKS = 8
_LEAST_GAP = 0.08  # between ticks, as a share of the values' span
_MARGIN = 0.05  # on either side of it


class Panel(Block):
    """One plot of a figure: which runs, over what, and what tells its lines apart."""

    title: str
    # `round`, or a column in which the runs differ: lines if it has numbers, else bars.
    x: str
    y: str = "accuracy"  # of m2fdp.reporting.measures.MEASURES
    # For each column its value or a list of values; all runs where it is empty.
    where: dict[str, Any] = Field(default_factory=dict)
    lines: str = style.ARM  # the column with a line for each value
    log_x: bool = False


class Layout(Block):
    """The panels of a figure, row by row."""

    columns: Annotated[int, Field(ge=1)] = 2
    panels: Annotated[list[Panel], Field(min_length=1)]


@dataclass(frozen=True)
class _Line:
    """The runs of one line in one panel."""

    label: str
    order: tuple  # of lines in a legend
    algorithms: frozenset[str]
    run_ids: pd.Index
    # By x: mean and std of the measure, the seeds that have run, and those that have the measure.
    points: pd.DataFrame

    @property
    def seeds(self) -> set[int]:
        return set(self.points["seeds"])


@dataclass(frozen=True)
class _Content:
    """What a panel shows."""

    panel: Panel
    lines: tuple[_Line, ...]  # in order
    categories: tuple[str, ...]  # texts of x, in order; none where x has numbers

    @property
    def labels(self) -> set[str]:
        return {line.label for line in self.lines}

    @property
    def lack(self) -> str | None:
        """Why there is nothing to draw; None if there is something."""
        if not self.lines:
            return "no finished runs"
        if self.panel.x == ROUND or any(line.points["measured"].any() for line in self.lines):
            return None
        if self.panel.y.endswith("to_target"):
            return "no finished run reached the target"
        return f"no finished run has {self.panel.y}"

    @property
    def names_itself(self) -> bool:
        """Bars that are lines themselves have their names below them."""
        return bool(self.categories) and self.panel.lines == self.panel.x


def check_layout(
    layout: Layout, columns: Collection[str], target_accuracy: float | None = None
) -> None:
    """Refuse a layout that a study's runs can't fill, whatever their results.

    Args:
        columns: in which the runs differ: arm, version, dotted keys of parameters.
        target_accuracy: of the study; None = none.

    Raises:
        InputError: naming the first wrong key, and what is valid.
    """
    known = [*dict.fromkeys((*_ALWAYS, *columns))]
    for number, panel in enumerate(layout.panels):
        key = f"figure.panels.{number}"
        for name, column, valid in (
            ("x", panel.x, [ROUND, *known, "devices"]),
            ("lines", panel.lines, known),
            *((f"where.{column}", column, known) for column in panel.where),
        ):
            if column not in valid:
                raise InputError(f"{key}.{name}", column, f"is none of {', '.join(valid)}")
        measures = {"y": panel.y} | ({"x": panel.x} if panel.x == "devices" else {})
        for name, measure in measures.items():
            try:
                check_measure(measure, columns, target_accuracy)
            except InputError as error:
                raise InputError(f"{key}.{name}", measure, error.remedy) from None
        if panel.x == ROUND and panel.y != "accuracy":
            raise InputError(f"{key}.y", panel.y, "over rounds only accuracy is drawn")
        if panel.log_x and panel.x in _NAMES:
            raise InputError(f"{key}.log_x", True, f"{panel.x} has no numbers")


def draw(
    layout: Layout, measured: pd.DataFrame, history: pd.DataFrame, labels: Mapping[str, str]
) -> Figure:
    """The figure; it saves to the same bytes always, whatever the order of the rows.

    Means over seeds, in a band or with error bars of one sample standard deviation. Where some
    runs lack the measure, as those that never reach the target, the mean is that of the others,
    and the panel says how many they are. A line that several panels share looks the same in all.

    Args:
        layout: checked by `check_layout`.
        measured: one row a run, of `m2fdp.reporting.measures.measure_runs`.
        history: one row a run and evaluated round, of `m2fdp.studies.records.load_history`.
        labels: the arms' texts, in the order in which lines are listed; arms without one are
            listed after them, by their names.

    Raises:
        InputError: no such column or measure, a panel that would mix runs that differ in more
            than it shows, or numbers that have no place on a logarithmic axis.
    """
    runs = measured.sort_values("seed", kind="stable")
    contents = [
        _content(panel, f"figure.panels.{number}", runs, labels)
        for number, panel in enumerate(layout.panels)
    ]
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


def _content(panel: Panel, key: str, runs: pd.DataFrame, labels: Mapping[str, str]) -> _Content:
    """A panel's runs by line and x.

    Raises:
        InputError: naming the key of the panel.
    """
    for name, column, valid in (
        ("x", panel.x, [ROUND, *runs.columns]),
        ("y", panel.y, [measure for measure in MEASURES if measure in runs]),
        ("lines", panel.lines, runs.columns),
    ):
        if column not in valid:
            raise InputError(f"{key}.{name}", column, f"is none of {', '.join(valid)}")
    try:
        selected = select_runs(runs, panel.where)
    except InputError as error:
        raise InputError(f"{key}.where", error.value, error.remedy) from None
    if selected.empty:
        return _Content(panel, (), ())
    # Over rounds a line has but one number of seeds.
    x = pd.Series(0.0, index=selected.index) if panel.x == ROUND else _numbers(selected[panel.x])
    categories: tuple[str, ...] = ()
    if x is None:
        if panel.log_x:
            raise InputError(f"{key}.log_x", True, f"{panel.x} has no numbers")
        x = selected[panel.x].map(lambda value: _text(panel.x, value, labels))
        places = {run_id: _order(run, panel.x, labels) for run_id, run in selected.iterrows()}
        categories = tuple(dict.fromkeys(x[sorted(places, key=places.__getitem__)]))
    elif panel.log_x and (x <= 0).any():
        raise InputError(f"{key}.log_x", True, f"{panel.x} = {x.min():g} has no logarithm")
    lines = selected[panel.lines].map(lambda value: _line_label(panel.lines, value, labels))
    drawn = selected.assign(**{_X: x, _LINE: lines}).dropna(subset=_X)
    _check_unmixed(drawn, key)
    return _Content(
        panel,
        tuple(
            sorted(
                (_line(label, own, panel, labels) for label, own in drawn.groupby(_LINE)),
                key=lambda line: (line.order, line.label),
            )
        ),
        categories,
    )


def _line(label: str, runs: pd.DataFrame, panel: Panel, labels: Mapping[str, str]) -> _Line:
    values = runs.groupby(_X)[panel.y]
    return _Line(
        label,
        min(_order(run, panel.lines, labels) for _, run in runs.iterrows()),
        frozenset(runs["algorithm"]),
        runs.index,
        pd.DataFrame(
            {
                "mean": values.mean(),
                "std": values.std(),
                "seeds": values.size(),
                "measured": values.count(),
            }
        ),
    )


def _check_unmixed(runs: pd.DataFrame, key: str) -> None:
    """One run a seed at each point, or their mean would mean nothing."""
    point = [_LINE, _X, "seed"]
    twice = runs[runs.duplicated(point, keep=False)]
    if twice.empty:
        return
    _, mixed = next(iter(twice.groupby(point)))
    swept = style.swept_columns(runs.columns, (*RUN_COLUMNS, *MEASURES, _X, _LINE))
    differing = [
        name for name in ("algorithm", *swept) if len(set(map(comparable, mixed[name]))) > 1
    ]
    raise InputError(
        f"{key}.where",
        f"{mixed[_LINE].iloc[0]}, seed {mixed['seed'].iloc[0]}",
        f"has {len(mixed)} runs at one point, which differ in {', '.join(differing) or 'nothing'}; "
        "select one of them, or give each a line",
    )


def _numbers(values: pd.Series) -> pd.Series | None:
    """A column as numbers, a list of one element as that; None if it has something else."""
    if values.name in _NAMES:
        return None
    plain = [comparable(value) for value in values]
    plain = [value[0] if isinstance(value, tuple) and len(value) == 1 else value for value in plain]
    if not all(isinstance(value, float | None) for value in plain):
        return None
    return pd.Series(plain, index=values.index, dtype=float)


def _text(column: str, value: object, labels: Mapping[str, str]) -> str:
    """A value's text beside an axis that names its column."""
    if column == style.ARM:
        return labels.get(str(value), str(value))
    if column == "algorithm":
        return get_algorithm(str(value)).title
    return style.parameter(value)


def _line_label(column: str, value: object, labels: Mapping[str, str]) -> str:
    text = _text(column, value, labels)
    return text if column in _NAMES else f"{column} = {text}"


def _order(run: pd.Series, column: str, labels: Mapping[str, str]) -> tuple:
    """Sorts a column's values: as labelled, baselines first, numbers before texts."""
    value = comparable(run[column])
    numbers = value if isinstance(value, tuple) else (value,)
    numeric = all(isinstance(number, float) for number in numbers)
    return (
        list(labels).index(run[column])
        if column == style.ARM and run[column] in labels
        else len(labels),
        style.position(run["algorithm"]) if column in (style.ARM, "algorithm") else 0,
        not numeric,
        numbers if numeric else (),
        str(run[column]),
    )


def _looks(contents: Sequence[_Content]) -> dict[str, style.Look]:
    """A look for each line of a figure, by label; an algorithm keeps its colour if it can.

    It can where every line has one algorithm and not all have the same.
    """
    algorithms: dict[str, frozenset[str]] = {}
    for line in sorted(
        (line for content in contents for line in content.lines),
        key=lambda line: (line.order, line.label),
    ):
        algorithms[line.label] = algorithms.get(line.label, frozenset()) | line.algorithms
    if all(len(own) == 1 for own in algorithms.values()) and len(set(algorithms.values())) > 1:
        of_algorithm = [next(iter(own)) for own in algorithms.values()]
        return {
            label: style.look(name, of_algorithm[:number].count(name))
            for number, (label, name) in enumerate(zip(algorithms, of_algorithm, strict=True))
        }
    return {label: style.palette_look(number) for number, label in enumerate(algorithms)}


def _draw_panel(
    axes: Axes,
    content: _Content,
    history: pd.DataFrame,
    looks: Mapping[str, style.Look],
    width: float,
    *,
    tell_seeds: bool,
) -> None:
    panel = content.panel
    x_label = "" if panel.x in _NAMES else panel.x
    style.tidy(axes, x_label, MEASURES[panel.y].label, whole_x=panel.x == ROUND)
    axes.set_title(
        textwrap.fill(panel.title, int((width - 0.8) / _CHARACTER)),
        fontsize=style.TITLE_SIZE,
        color=style.INK,
        loc="left",
    )
    if content.lack:
        axes.set(xticks=[], yticks=[])
        axes.text(
            0.5,
            0.5,
            content.lack,
            transform=axes.transAxes,
            ha="center",
            va="center",
            color=style.COLOURS[0],
            fontsize=style.LABEL_SIZE,
        )
        return
    if content.categories:
        _draw_bars(axes, content, looks, width, tell_seeds)
    elif panel.x == ROUND:
        for line in content.lines:
            own = history[history["run_id"].isin(line.run_ids)]
            means = over_seeds(own)
            number = list(looks).index(line.label)
            draw_band(axes, means["round"], means, looks[line.label], number, line.label)
    else:
        _draw_points(axes, content, looks)
        _fit_values(axes, content)
    if panel.log_x and panel.x == ROUND:
        axes.set_xscale("log")


def _draw_points(axes: Axes, content: _Content, looks: Mapping[str, style.Look]) -> None:
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
            axes.annotate(
                f"{point['measured']:.0f} of {point['seeds']:.0f}",
                (x, 0),
                xycoords=axes.get_xaxis_transform(),
                xytext=(0, 2 + _ROW_POINTS * row),
                textcoords="offset points",
                ha="center",
                color=look.colour,
                fontsize=_SMALL,
            )
        row += len(lacking) > 0


def _draw_bars(
    axes: Axes,
    content: _Content,
    looks: Mapping[str, style.Look],
    width: float,
    tell_seeds: bool,
) -> None:
    """Means with error bars, side by side where a category has several lines."""
    n_groups = 1 if content.names_itself else len(content.lines)
    bar = 0.8 / n_groups
    for number, line in enumerate(content.lines):
        look = looks[line.label]
        alike = [label for label in looks if looks[label].colour == look.colour]
        group = 0 if content.names_itself else number
        places = [
            content.categories.index(x) + (group - (n_groups - 1) / 2) * bar
            for x in line.points.index
        ]
        heights = line.points["mean"].fillna(0)
        axes.bar(
            places,
            heights,
            bar * 0.9,
            yerr=line.points["std"],
            color=look.colour,
            edgecolor="white",
            hatch=_HATCHES[alike.index(line.label) % len(_HATCHES)],
            capsize=3,
            ecolor=style.INK,
            label=line.label,
        )
        tops = heights + line.points["std"].fillna(0)
        for place, top, point in zip(places, tops, line.points.itertuples(), strict=True):
            if point.measured < point.seeds:
                note = f"{point.measured} of {point.seeds}"
            elif tell_seeds:
                note = f"n = {point.seeds}"
            else:
                continue
            axes.annotate(
                note,
                (place, top),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                color=style.INK,
                fontsize=_SMALL,
            )
    _name_categories(axes, content.categories, width)
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")


def _fit_values(axes: Axes, content: _Content) -> None:
    """An axis of all values of x, measured or not; ticks at them if they are few and far apart."""
    values = sorted(set().union(*(line.points.index for line in content.lines)))
    places = np.array(values)
    if content.panel.log_x:
        axes.set_xscale("log")
        places = np.log(places)
    if len(values) > 1:
        margin = _MARGIN * np.ptp(places)
        limits = np.array([places[0] - margin, places[-1] + margin])
        axes.set_xlim(np.exp(limits) if content.panel.log_x else limits)
    least = _LEAST_GAP * np.ptp(places)
    if len(values) <= _MOST_TICKS and (np.diff(places) >= least).all():
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


def _align(panels: Sequence[tuple[Axes, _Content]]) -> None:
    """One scale for all panels of lines that show the same, with room for their notes.

    Accuracies over rounds and final ones differ too much to share one.
    """
    kinds: dict[tuple[str, bool], list[Axes]] = {}
    for axes, content in panels:
        if not content.lack and not content.categories:
            kind = (content.panel.y, content.panel.x == ROUND)
            kinds.setdefault(kind, []).append(axes)
    for alike in kinds.values():
        low = min(axes.get_ylim()[0] for axes in alike)
        high = max(axes.get_ylim()[1] for axes in alike)
        notes = max(
            len({text.xyann[1] for text in axes.texts if hasattr(text, "xyann")}) for axes in alike
        )
        for axes in alike:
            axes.set_ylim(low - 0.07 * notes * (high - low), high)


def _notes(axes: Axes) -> list[Annotation]:
    return [text for text in axes.texts if isinstance(text, Annotation)]


def _add_legends(
    figure: Figure, panels: Sequence[tuple[Axes, _Content]], rows: int, seeds: set[int]
) -> None:
    """Below the figure if one panel has all lines, else below each; and how many seeds."""
    told = None
    if len(seeds) == 1:
        (n,) = seeds
        told = f"n = {n} seed{'s' if n > 1 else ''}"
        if n > 1:
            told += ", mean ± std"
    named = [
        (axes, content) for axes, content in panels if not content.lack and not content.names_itself
    ]
    every = set().union(*(content.labels for _, content in named))
    full = [axes for axes, content in named if content.labels == every]
    if full:
        contents = [content for _, content in named]
        legend_below(figure, *_entries(full[0], contents, told is None), title=told)
        return
    if told:
        figure.supxlabel(told, fontsize=style.TICK_SIZE, color=style.INK)
    if named:
        _add_own_legends(figure, named, rows, told is None)


def _add_own_legends(
    figure: Figure, named: Sequence[tuple[Axes, _Content]], rows: int, tell_seeds: bool
) -> None:
    """Below each panel's axis label, wherever that is."""
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    most = 0
    for axes, content in named:
        handles, labels = _entries(axes, [content], tell_seeds)
        columns = legend_columns(labels, axes.bbox.width / figure.dpi)
        most = max(most, -(-len(labels) // columns))
        below = (axes.bbox.y0 - axes.xaxis.get_tightbbox().y0) / figure.dpi
        axes.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=axes.transAxes + ScaledTranslation(0, -below, figure.dpi_scale_trans),
            ncols=columns,
            fontsize=style.TICK_SIZE,
            frameon=False,
            handlelength=3.2,
        )
    figure.set_size_inches(width, height + 0.25 * most * rows)


def _entries(axes: Axes, contents: Sequence[_Content], tell_seeds: bool) -> tuple[list, list[str]]:
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
