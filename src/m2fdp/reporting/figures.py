"""Figures of runs, of the privacy ledger and of audits; each saves to the same bytes always."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from m2fdp.claims.frames import TAGS, swept_columns
from m2fdp.claims.intervals import summarise
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import lower_bound, parameter, upper_bound
from m2fdp.core.metrics import ENERGY, leading
from m2fdp.reporting import panel_figures, style
from m2fdp.reporting.tables import shown_of, worst_positions

MARKED_POINTS = 40  # more would run into one another
LARGEST_NUMBERED_MATRIX = 30
WIDTH = 10.0  # inches, of the comparison
_LINES_HEIGHT = 4.2


def accuracy_curve(round_metrics: pd.DataFrame, title: str, guarantee: str = "verified") -> Figure:
    """Accuracy, or the first metric of numbers, over the rounds of one run and, where there is one,
    epsilon so far below it."""
    measure = leading(round_metrics.iloc[-1])
    rounds = round_metrics["round"]
    private = bool(np.isfinite(round_metrics["epsilon"]).any())
    figure = style.new_figure(7.0, 5.4 if private else 3.8)
    ratios = [2, 1][: 1 + private]
    of_rows = figure.subplots(len(ratios), sharex=True, squeeze=False, height_ratios=ratios)
    panels = of_rows[:, 0]
    marker = "o" if len(rounds) <= MARKED_POINTS else ""
    look = {"color": style.COLOURS[3], "marker": marker, "markersize": 4}
    panels[0].plot(rounds, round_metrics[measure.name], **look)
    style.tidy(panels[0], "" if private else "round", measure.label, whole_x=True)
    style.title(panels[0], title)
    if private:
        # Between evaluations rather too much than too little.
        look = {"color": style.EPSILON_COLOUR, "drawstyle": "steps-pre", "linewidth": 1.5}
        panels[1].plot([0, *rounds], [0, *round_metrics["epsilon"]], **look)
        panels[1].set_ylim(bottom=0)
        style.tidy(panels[1], "round", f"ε {guarantee} so far", whole_x=True)
    return figure


def confusion_matrix(matrix: np.ndarray, labels: Sequence[str], right: str = "Accuracy") -> Figure:
    """Counts, shaded by the share of the true label's records; `right` is what the share of those
    on the diagonal is called."""
    n = len(labels)
    totals = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(matrix, totals, out=np.zeros(matrix.shape), where=totals > 0)
    numbered = n <= LARGEST_NUMBERED_MATRIX
    side = float(np.clip(0.42 * n, 3.2, 9.0))
    figure = style.new_figure(side + 1.4, side + 0.8)
    axes = figure.subplots()
    # Not of equal sides: a layout would not see the room that such a square leaves beside it.
    image = axes.imshow(shares, cmap="Blues", aspect="auto", vmin=0, vmax=1)
    if numbered:
        size = float(np.clip(72 * side / n / 3.2, 4.5, 9.0))
        for row, column in product(range(n), range(n)):
            if matrix[row, column]:
                ink = "white" if shares[row, column] > 0.5 else style.INK
                style.write(axes, column, row, f"{matrix[row, column]}", size, ink)
    style.tidy(axes, "predicted label", "true label")
    axes.grid(visible=False)
    step = 1 if numbered else 10
    names = list(map(style.shortened, labels[::step]))
    turned = "vertical" if max(map(len, names)) > 3 else "horizontal"
    axes.set_xticks(range(0, n, step), names, rotation=turned, parse_math=False)
    axes.set_yticks(range(0, n, step), names, parse_math=False)
    correct, total = int(np.trace(matrix)), int(matrix.sum())
    style.title(axes, f"{right} {correct / total:.3f}: {correct:,} of {total:,} records")
    style.colour_bar(figure, image, axes, "share of the true label")
    return figure


def label_distribution(counts: pd.DataFrame) -> Figure:
    """How many training records of each label every device holds.

    The counts are un-noised: they show what a simulation dealt, and the title says that they
    are not for publication under DP.
    """
    n_devices, n_labels = counts.shape
    height = float(np.clip(0.24 * n_labels, 2.0, 7.0))
    figure = style.new_figure(9.0, height + 2.4)
    sizes_axes, axes = figure.subplots(2, 1, sharex=True, height_ratios=[1.1, height])
    sizes = counts.sum(axis=1).to_numpy()
    edges, look = np.arange(n_devices + 1) - 0.5, {"color": style.COLOURS[3], "linewidth": 0}
    sizes_axes.fill_between(edges, np.append(sizes, sizes[-1]), step="post", **look)
    sizes_axes.set_ylim(bottom=0)
    style.tidy(sizes_axes, "", "records")
    style.title(
        sizes_axes,
        "Training records by device and label\n"
        "Simulation diagnostic: un-noised counts of private records, "
        "not for publication under DP",
        style.LABEL_SIZE,
    )
    shades = {"cmap": "Blues", "aspect": "auto", "vmin": 0, "interpolation": "nearest"}
    image = axes.imshow(counts.to_numpy().T, **shades)
    style.tidy(axes, "device", "label", whole_x=True)
    axes.grid(visible=False)
    axes.set_xlim(-0.5, n_devices - 0.5)
    if counts.index.dtype.kind != "i" and n_devices <= LARGEST_NUMBERED_MATRIX:
        names = list(map(style.shortened, counts.index))
        axes.set_xticks(range(n_devices), names, rotation="vertical", parse_math=False)
    step = 1 if n_labels <= LARGEST_NUMBERED_MATRIX else 10
    axes.set_yticks(range(0, n_labels, step), [str(label) for label in counts.columns[::step]])
    style.colour_bar(figure, image, axes, "records")
    return figure


def comparison(history: pd.DataFrame) -> Figure:
    """Accuracy, or the first metric of numbers, over rounds and over energy, mean and one standard
    deviation over the seeds; below it what it ends with, as dots.

    Args:
        history: one row per run and evaluated round with `HISTORY_COLUMNS`; every other
            column is a study's arm, version or swept parameter, and each of its values gets a line
            of its own.

    Raises:
        InputError: no rows, a seed twice in one line, or an unknown algorithm.
    """
    if history.empty:
        raise InputError("history", "(none)", "there is nothing to compare yet")
    lines, measure = list(_lines(history)), leading(history.iloc[-1])
    heights = [_LINES_HEIGHT, panel_figures.row_height(1.3 * len(lines))]
    figure = style.new_figure(WIDTH, sum(heights))
    grid = figure.add_gridspec(2, 2, height_ratios=heights)
    by_round = figure.add_subplot(grid[0, 0])
    by_energy = figure.add_subplot(grid[0, 1], sharey=by_round)
    by_energy.tick_params(labelleft=False)
    dots = []
    for number, (label, look, runs) in enumerate(lines):
        means = panel_figures.over_seeds(runs, measure.name)
        name = f"{label} (n = {runs['seed'].nunique()})"
        panel_figures.draw_band(by_round, means["round"], means, look, number, name)
        panel_figures.draw_band(by_energy, means[ENERGY.name], means, look, number, name)
        last = runs.sort_values(["seed", "round"]).drop_duplicates("seed", keep="last")
        ended = summarise(last[measure.name].to_numpy())
        dots.append(panel_figures.Dot(number, label, ended, look))
    style.tidy(by_round, "round", f"{measure.label} (mean ± std)", whole_x=True)
    style.tidy(by_energy, "energy so far (J)", "")
    ends = figure.add_subplot(grid[1, :])
    style.tidy(ends, "", "")
    panel_figures.draw_dots(ends, dots, [label for label, _, _ in lines], measure.name)
    ends.set_xlabel(f"{measure.label} in the end ({panel_figures.INTERVAL})")
    panel_figures.legend_below(figure, *by_round.get_legend_handles_labels())
    return figure


def _lines(history: pd.DataFrame) -> Iterator[tuple[str, style.Look, pd.DataFrame]]:
    """Label, look and rows of the history of each line, baselines first."""
    swept = swept_columns(history.columns)
    for algorithm in sorted(history["algorithm"].unique(), key=style.position):
        rows = history[history["algorithm"] == algorithm]
        varied = [name for name in swept if rows[name].nunique(dropna=False) > 1]
        groups = rows.groupby(varied, dropna=False) if varied else [((), rows)]
        for variant, (values, runs) in enumerate(groups):
            parts = [
                parameter(value) if name in TAGS else f"{name} = {parameter(value)}"
                for name, value in zip(varied, values, strict=True)
            ]
            label = ", ".join([get_algorithm(algorithm).title, *parts])
            yield label, style.look(algorithm, variant), runs


MAPPED_POSITIONS = 25
DARK = "#333333"  # of a cell whose epsilon is infinite
# By how many bars an observer has: from one's middle to the next's, and how thick each is.
_BARS = {2: (0.4, 0.35), 3: (0.25, 0.22)}


def ledger_heat_map(ledger: pd.DataFrame) -> Figure:
    """Epsilon of every position of a data owner (rows) for every kind of observer (columns).

    Args:
        ledger: rows of `m2fdp.core.privacy.ledger.ledger_table`. Where there are many
            positions, those that lose most are drawn.
    """
    lines = worst_positions(ledger, MAPPED_POSITIONS)
    cells = lines.pivot_table(
        index="position", columns="kind", values="epsilon", aggfunc="max", sort=False
    )
    values = cells.to_numpy()
    n_rows, n_columns = values.shape
    counts = lines.groupby("position")["devices"].max()
    figure = style.new_figure(3.6 + 1.05 * n_columns, 1.6 + 0.42 * n_rows)
    axes = figure.subplots()
    finite = values[np.isfinite(values) & (values > 0)]
    low, high = (finite.min(), finite.max()) if finite.size else (1.0, 1.0)
    scale = LogNorm(low / 1.5, high * 1.5)
    shades = np.where(np.isfinite(values), np.maximum(values, low), np.nan)
    image = axes.imshow(shades, cmap="Oranges", norm=scale, aspect="auto")
    for row, column in product(range(n_rows), range(n_columns)):
        _draw_epsilon(axes, row, column, values[row, column], scale)
    style.tidy(axes, "observer", "")
    axes.grid(visible=False)
    distrusted = set(lines.loc[lines["distrusted"], "kind"])
    names = [
        name.replace("_", "\n") + ("\n(promise)" if name in distrusted else "")
        for name in cells.columns
    ]
    axes.set_xticks(range(n_columns), names)
    for label, name in zip(axes.get_xticklabels(), cells.columns, strict=True):
        label.set_fontweight("bold" if name in distrusted else "normal")
    axes.set_yticks(range(n_rows), [f"{name}\n(devices: {counts[name]:,})" for name in cells.index])
    title = f"ε at δ = {ledger['delta'].iloc[0]:g}, rounded up"
    style.title(axes, title + shown_of(ledger, lines, ":"))
    style.colour_bar(figure, image, axes, "ε")
    return figure


def epsilon_over_rounds(table: pd.DataFrame, target: float) -> Figure:
    """Epsilon of every kind of observer over the rounds, and the target.

    Args:
        table: a column `round`, and one for each kind of observer.
    """
    kinds = table.drop(columns="round")
    figure = style.new_figure(7.0, 4.2)
    axes = figure.subplots()
    finite = [kind for kind in kinds if np.isfinite(kinds[kind]).all()]
    # Kinds that see the same share a line.
    groups: dict[tuple[float, ...], list[str]] = {}
    for kind in finite:
        groups.setdefault(tuple(kinds[kind]), []).append(str(kind).replace("_", " "))
    for number, (values, names) in enumerate(groups.items()):
        colour = style.COLOURS[1:][number % (len(style.COLOURS) - 1)]
        marker, label = style.MARKERS[number % len(style.MARKERS)], ", ".join(names)
        axes.plot(table["round"], values, color=colour, marker=marker, markersize=4, label=label)
    axes.axhline(target, color=style.INK, linestyle="--", linewidth=1, label=f"target {target:g}")
    axes.set_yscale("log")
    style.plain_log(axes.yaxis)
    style.tidy(axes, "round", "ε", whole_x=True)
    infinite = [str(kind).replace("_", " ") for kind in kinds if kind not in finite]
    title = "ε over the rounds by observer"
    if infinite:
        title += "\n∞ (messages in clear): " + ", ".join(infinite)
    style.title(axes, title, style.LABEL_SIZE)
    style.legend_below(figure, axes.get_legend_handles_labels(), 2)
    return figure


def audit_bounds(bounds: pd.DataFrame) -> Figure:
    """What every audited observer learns at least, at most, and should.

    Args:
        bounds: position, observer, epsilon_lower, epsilon_upper, epsilon_nominal, confidence
            and rounds; a row an observer.
    """
    names = [
        f"{observer}\nabout devices {position}"
        for position, observer in zip(bounds["position"], bounds["observer"], strict=True)
    ]
    series = (
        ("epsilon_lower", style.COLOURS[2], "lower bound (audit)", lower_bound),
        ("epsilon_upper", style.EPSILON_COLOUR, "upper bound (ledger)", upper_bound),
        ("epsilon_nominal", style.COLOURS[0], "nominal (target)", upper_bound),
    )
    bars = [(bounds[column], colour, name) for column, colour, name, _ in series]
    figure, axes = _observers(names, 2.2 + 0.9 * len(names), bars)
    for place, (column, _, _, written) in enumerate(series):
        for row, value in enumerate(bounds[column]):
            at = row + 0.25 * (place - 1)
            style.write(axes, value, at, f" {written(value)}", style.TICK_SIZE, ha="left")
    # Linear up to the least target, so that a lower bound of zero has its place.
    axes.set_xscale("symlog", linthresh=float(bounds["epsilon_nominal"].min()))
    axes.set_xlim(0, 3 * float(bounds[["epsilon_upper", "epsilon_nominal"]].max().max()))
    style.tidy(axes, "ε", "")
    confidence = f"{bounds['confidence'].iloc[0]:.0%} confidence"
    style.title(axes, f"Audit at T = {bounds['rounds'].iloc[0]}, {confidence}")
    return figure


def neighbours_figure(tried: pd.DataFrame) -> Figure:
    """How far neighbours moved what every observer reads, and may.

    Args:
        tried: observer, found, allowed and neighbours; a row an observer.
    """
    finite = tried["found"].replace(np.inf, np.nan)
    series = [
        (finite, style.COLOURS[2], "largest shift found"),
        (tried["allowed"], style.EPSILON_COLOUR, "allowed (ledger)"),
    ]
    figure, axes = _observers(list(tried["observer"]), 1.8 + 0.5 * len(tried), series)
    for row, found in enumerate(tried["found"]):
        style.write(axes, 0.0, row - 0.2, f" {found:.3g}", style.TICK_SIZE, ha="left")
    style.tidy(axes, "standard deviations of the noise, one release", "")
    style.title(axes, f"Audit by {tried['neighbours'].max():,} neighbours")
    return figure


def _observers(
    names: Sequence[str], height: float, series: Sequence[tuple[pd.Series, str, str]]
) -> tuple[Figure, Axes]:
    """Bars of each observer, from above, and what they are in a legend."""
    figure = style.new_figure(7.0, height)
    axes = figure.subplots()
    step, thickness = _BARS[len(series)]
    for place, (values, colour, name) in enumerate(series):
        rows = np.arange(len(names)) + step * (place - (len(series) - 1) / 2)
        axes.barh(rows, values, height=thickness, color=colour, label=name)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    style.legend_below(figure, axes.get_legend_handles_labels(), len(series))
    return figure, axes


def _draw_epsilon(axes: Axes, row: int, column: int, value: float, scale: LogNorm) -> None:
    """The text of one cell, and the look of one that has no colour."""
    if not np.isfinite(value):
        look: dict[str, Any] = {"facecolor": "white", "edgecolor": style.GRID}
        if np.isinf(value):
            look = {"facecolor": DARK, "edgecolor": "#777777", "hatch": "///"}
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=0, **look))
    text = "–" if np.isnan(value) else upper_bound(value)
    ink = "white" if np.isinf(value) or scale(value) > 0.6 else style.INK
    weight = "bold" if np.isinf(value) else "normal"
    style.write(axes, column, row, text, style.TICK_SIZE, ink, fontweight=weight)
