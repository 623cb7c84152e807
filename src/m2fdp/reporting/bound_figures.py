"""Figures of the convergence bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from m2fdp.reporting import style

# Column, label, colour, line and marker.
_TERMS = (
    ("a1", "(a$_1$) loss lost", style.COLOURS[1], "--", "v"),
    ("a2", "(a$_2$) local steps", style.COLOURS[2], "--", "^"),
    ("b", "(b) privacy noise", style.COLOURS[5], "--", "s"),
    ("bound", "bound", style.COLOURS[3], "-", "o"),
)


def convergence_bounds(table: pd.DataFrame, title: str) -> Figure:
    """Theorem 1 as printed, and what its proof's steps give, each beside the mean it bounds.

    Args:
        table: rows of `m2fdp.convergence.run.bound_table`. Terms that are not positive, as (a1)
            of a run whose loss has grown, have no place on the logarithmic axis.
    """
    figure = style.new_figure(10.0, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    step = max(1, len(table) // 8)
    for axes, prefix, mean, name in (
        (panels[0], "", "mean_gradient_norm_sq", "Theorem 1 as printed"),
        (panels[1], "proven_", "weighted_gradient_norm_sq", "The proof's steps, the run's noise"),
    ):
        for number, (term, label, colour, line, marker) in enumerate(_TERMS):
            values = table[f"{prefix}{term}"]
            axes.plot(
                table["round"],
                values.where(values > 0, np.nan),
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=4,
                # Staggered, so that lines that coincide show both their markers.
                markevery=(number * step // len(_TERMS), step),
                label=label,
            )
        measured = {"color": style.INK, "linewidth": 2, "label": "measured: mean ‖∇F‖²"}
        axes.plot(table["round"], table[mean], **measured)
        axes.set_yscale("log")
        style.tidy(axes, "round T", "" if prefix else "mean ‖∇F‖² over rounds 1…T", whole_x=True)
        style.title(axes, name, style.LABEL_SIZE)
    style.headline(figure, title)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), len(_TERMS) + 1)
    return figure
