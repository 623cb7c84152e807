"""Figures of the privacy ledger and of audits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from m2fdp.core.formatting import lower_bound, upper_bound
from m2fdp.reporting import style
from m2fdp.reporting.tables import worst_positions

MAPPED_POSITIONS = 25
DARK = "#333333"  # of a cell whose epsilon is infinite
# By how many bars an observer has: from one's middle to the next's, and how thick each is.
_BARS = {2: (0.4, 0.35), 3: (0.25, 0.22)}


def ledger_heat_map(ledger: pd.DataFrame) -> Figure:
    """Epsilon of every position of a data owner (rows) for every kind of observer (columns).

    Args:
        ledger: rows of `m2fdp.core.privacy.ledger_tables.ledger_table`. Where there are many
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
    image = axes.imshow(
        np.where(np.isfinite(values), np.maximum(values, low), np.nan),
        cmap="Oranges",
        norm=scale,
        aspect="auto",
    )
    for row, column in product(range(n_rows), range(n_columns)):
        _draw_epsilon(axes, row, column, values[row, column], scale)
    style.tidy(axes, "observer", "")
    axes.grid(visible=False)
    distrusted = set(lines.loc[lines["distrusted"], "kind"])
    names = [
        name.replace("_", "\n") + ("\n(distrusted)" if name in distrusted else "")
        for name in cells.columns
    ]
    axes.set_xticks(range(n_columns), names)
    for label, name in zip(axes.get_xticklabels(), cells.columns, strict=True):
        label.set_fontweight("bold" if name in distrusted else "normal")
    axes.set_yticks(range(n_rows), [f"{name}\n(devices: {counts[name]:,})" for name in cells.index])
    title = f"ε at δ = {ledger['delta'].iloc[0]:g}, rounded up"
    n_all = ledger["position"].nunique()
    if n_rows < n_all:
        title += f": the {n_rows} of {n_all} positions that lose most"
    style.title(axes, title)
    style.colour_bar(figure, image, axes, "ε")
    return figure


def epsilon_over_rounds(table: pd.DataFrame, target: float) -> Figure:
    """Epsilon of every kind of observer over the rounds, and the target.

    Args:
        table: a column `round`, and one for each kind of observer.
        target: epsilon that distrusted observers must not pass.
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
        axes.plot(
            table["round"],
            values,
            color=style.COLOURS[1:][number % (len(style.COLOURS) - 1)],
            marker=style.MARKERS[number % len(style.MARKERS)],
            markersize=4,
            label=", ".join(names),
        )
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
    """Bars of each observer, from above, and what they are in a legend.

    Args:
        height: inches of the figure.
        series: values, one an observer, with their colour and what they are.
    """
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
        infinite = np.isinf(value)
        axes.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                facecolor=DARK if infinite else "white",
                edgecolor="#777777" if infinite else style.GRID,
                hatch="///" if infinite else None,
                linewidth=0,
            )
        )
    text = "–" if np.isnan(value) else upper_bound(value)
    ink = "white" if np.isinf(value) or scale(value) > 0.6 else style.INK
    weight = "bold" if np.isinf(value) else "normal"
    style.write(axes, column, row, text, style.TICK_SIZE, ink, fontweight=weight)
