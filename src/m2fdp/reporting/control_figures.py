"""What a controller has planned, as a figure."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from m2fdp.reporting import style

# Title, and the columns of `m2fdp.control.run.planned_rounds` with what they are called.
_PANELS = (
    ("Local steps K", (("K", "K"),)),
    (
        "Devices a server that take part",
        (("s_trusted", "below trusted nodes"), ("s_untrusted", "below untrusted nodes")),
    ),
    ("Step size η", (("eta", "η"),)),
    (
        "Prices of what is left, over their units",
        (("energy_share", "energy"), ("delay_share", "delay"), ("gap_share", "gap ν")),
    ),
)


def planned_rounds(plan: pd.DataFrame) -> Figure:
    """K, participation, step size and the three prices over the rounds.

    Args:
        plan: rows of `m2fdp.control.run.planned_rounds`, with at least one round.
    """
    figure = style.new_figure(9.0, 6.0)
    panels = figure.subplots(2, 2, sharex=True)
    for number, (axes, (title, lines)) in enumerate(zip(panels.flat, _PANELS, strict=True)):
        for colour, (column, label) in zip(style.COLOURS[3:], lines, strict=False):
            axes.plot(
                plan["round"],
                plan[column],
                color=colour,
                label=label,
                drawstyle="default" if column == "eta" else "steps-mid",
                marker="o" if len(plan) == 1 else "",
            )
        if number < 3:
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(integer=number < 2))
        else:
            axes.set_yscale("log")
        style.tidy(axes, "round" if number > 1 else "", "", whole_x=True)
        style.title(axes, title)
        if len(lines) > 1:
            axes.legend(fontsize=style.LABEL_SIZE, frameon=False)
    return figure
