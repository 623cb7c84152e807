"""What a model is worth at each client, worst first: in the terminal, and as a picture."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from m2fdp.claims.measures import MEASURES
from m2fdp.core.formatting import counted
from m2fdp.core.metrics import LOSS
from m2fdp.reporting import style
from m2fdp.reporting.tables import show

_FEW, _MOST_DRAWN = 10, 60  # clients
_OTHERS = {"client", "records"}


def print_by_client(by_client: pd.DataFrame, console: Console | None = None) -> None:
    """The worst clients and their metrics; nothing where nobody says whose records are."""
    if by_client.empty:
        return
    title = f"by client, worst first (test records: {by_client['records'].sum():,})"
    table = Table(title=Text(title), title_justify="left")
    measures = [name for name in map(str, by_client) if name not in _OTHERS | {LOSS.name}]
    table.add_column("client", overflow="fold")
    for heading in ("records", *(MEASURES[name].words for name in measures)):
        table.add_column(heading, justify="right")
    for row in by_client.head(_FEW).to_dict("records"):
        values = (MEASURES[name].text(row[name]) for name in measures)
        table.add_row(Text(row["client"]), f"{row['records']:,}", *values)
    if more := len(by_client) - _FEW if len(by_client) > _FEW else 0:
        table.caption = f"and {counted(more, 'client')} more in metrics_by_client.csv"
    show(table, console)


def draw_by_client(by_client: pd.DataFrame) -> Figure:
    """A panel a metric, a bar a client, the worst above; the number of its test records beside."""
    drawn = by_client.head(_MOST_DRAWN)
    measures = [name for name in map(str, drawn) if name not in _OTHERS]
    figure = style.new_figure(2.2 + 2.4 * len(measures), 1.6 + 0.26 * len(drawn))
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    places = np.arange(len(drawn))
    for axes, name in zip(panels, measures, strict=True):
        values = drawn[name].to_numpy(dtype=float)
        axes.barh(places, np.nan_to_num(values), color=style.COLOURS[3], height=0.7)
        for place, value in enumerate(values):
            text = f" {MEASURES[name].text(value)}"
            style.write(axes, np.nan_to_num(value), place, text, style.TICK_SIZE, ha="left")
        axes.margins(x=0.25)
        axes.locator_params(axis="x", nbins=3)
        style.tidy(axes, MEASURES[name].label, "")
    names = [
        f"{style.shortened(client)} ({records:,})"
        for client, records in zip(drawn["client"], drawn["records"], strict=True)
    ]
    panels[0].set_yticks(places, names, parse_math=False)
    panels[0].invert_yaxis()
    more = f", the {len(drawn)} worst of {len(by_client)}" if len(by_client) > len(drawn) else ""
    style.headline(figure, f"Test records by client{more}")
    style.foot(figure, "Read off test records without noise: for you, not for publication under DP")
    return figure
