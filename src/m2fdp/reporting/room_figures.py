"""Figures and tables of what rooms beside the core bring: a controller's plan, bounds, the clock,
audits and attacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.text import Text

from m2fdp.core.formatting import counted, lower_bound, nominal, promised_epsilon, upper_bound
from m2fdp.reporting import style
from m2fdp.reporting.tables import new_table, show

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
    """K, participation, step size and the three prices over the rounds."""
    figure = style.new_figure(9.0, 6.0)
    panels = figure.subplots(2, 2, sharex=True)
    for number, (axes, (title, lines)) in enumerate(zip(panels.flat, _PANELS, strict=True)):
        for colour, (column, label) in zip(style.COLOURS[3:], lines, strict=False):
            steps = "default" if column == "eta" else "steps-mid"
            look = {"drawstyle": steps, "marker": "o" if len(plan) == 1 else ""}
            axes.plot(plan["round"], plan[column], color=colour, label=label, **look)
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
            values = table[f"{prefix}{term}"].where(lambda value: value > 0, np.nan)
            # Staggered, so that lines that coincide show both their markers.
            every = (number * step // len(_TERMS), step)
            look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4}
            axes.plot(table["round"], values, label=label, markevery=every, **look)
        measured = {"color": style.INK, "linewidth": 2, "label": "measured: mean ‖∇F‖²"}
        axes.plot(table["round"], table[mean], **measured)
        axes.set_yscale("log")
        style.tidy(axes, "round T", "" if prefix else "mean ‖∇F‖² over rounds 1…T", whole_x=True)
        style.title(axes, name, style.LABEL_SIZE)
    style.headline(figure, title)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), len(_TERMS) + 1)
    return figure


DTFL, ORACLE, FEDAVG, _SPLITFED, _FEDGKT = (style.COLOURS[i] for i in (3, 2, 0, 5, 4))
LINES = (
    ("splitfed_s", "SplitFed", _SPLITFED, ":"),
    ("fedgkt_s", "FedGKT", _FEDGKT, (0, (3, 1, 1, 1, 1, 1))),
    ("fedavg_s", "FedAvg", FEDAVG, "--"),
    ("dtfl_s", "DTFL", DTFL, "-"),
    ("oracle_s", "times known before", ORACLE, "-."),
)


def tiers_over_rounds(table: pd.DataFrame) -> Figure:
    """Who trains how much, and what the rounds take, over the rounds of the plan."""
    figure = style.new_figure(8.0, 6.0)
    times, tiers = figure.subplots(2, 1, sharex=True)
    plot_lines(times, table, "round", marker="")
    times.set_yscale("log")
    style.tidy(times, "", "seconds of a round")
    style.legend_below(figure, times.get_legend_handles_labels(), len(LINES))
    names = [name for name in table.columns if name.startswith("tier_")]
    shades = np.linspace(0.15, 0.95, len(names))
    bottoms = np.zeros(len(table))
    for name, shade in zip(names, shades, strict=True):
        blue = (1 - shade, 1 - 0.6 * shade, 1 - 0.3 * shade)
        tiers.bar(table["round"], table[name], 1.0, bottoms, color=blue, label=name[5:])
        bottoms = bottoms + table[name]
    tiers.legend(title="tier", fontsize=style.TICK_SIZE, loc="center left", bbox_to_anchor=(1, 0.5))
    style.tidy(tiers, "round", "clients", whole_x=True)
    title(figure, table, "Tiers over rounds")
    return figure


def plot_lines(
    axes: Axes, table: pd.DataFrame, x: str, lines: Sequence[tuple] = LINES, marker: str = "o"
) -> None:
    """The columns that a table has of some, each with its label, colour and line, over one."""
    for column, label, colour, line in lines:
        if column in table:
            look = {"color": colour, "linestyle": line, "marker": marker, "label": label}
            axes.plot(table[x], table[column], **look)


def title(figure: Figure, table: pd.DataFrame, text: str) -> None:
    """What the figure shows, and of which model's times."""
    style.headline(figure, f"{text} (times of {table['model'].iloc[0]})")


# Pictures in a row, and rows, that are drawn.
_MOST_PICTURES, _MOST_ROWS = 8, 8
_SIDE = 0.85  # inches of a picture
_WORDS = 4.6  # inches left of them
_LOWEST_RATE = 1e-4  # of true and false positives that are drawn


def attack_figure(record: Mapping[str, Any]) -> Figure:
    """What an attack has found, whatever it was.

    Args:
        record: the record of an `m2fdp.adversaries.attacks.Attacked`.
    """
    return memberships(record) if "memberships" in record else reconstructions(record)


def reconstructions(record: Mapping[str, Any]) -> Figure:
    """Truth and reconstruction of each message, a row each, with what it is worth and epsilon."""
    rows = [
        (f"{sent(message)}\n{worth(message)}", message["pictures"])
        for message in record["messages"][:_MOST_ROWS]
    ]
    who = ", ".join(record["observers"].values())
    title = (
        f"Reconstructed by {who} ({record['method']}, {record['dataset']}, {record['model']}): "
        "what was there, and below it what was found"
    )
    return _pictures(title, rows, record["note"])


def board(title: str, records: Mapping[str, Mapping[str, Any]]) -> Figure:
    """What one observer reconstructs of the first message in several runs, a row each."""
    rows = []
    for name, record in records.items():
        message = record["messages"][0]
        rows.append((f"{name}\n{message['sees']}\n{worth(message)}", message["pictures"]))
    note = next(iter(records.values()))["note"] if records else ""
    return _pictures(title, rows, note)


def sent(message: Mapping[str, Any]) -> str:
    """What a message is, and how many devices and records are in it."""
    devices, records = message["devices"], message["records"]
    of = f"{devices} device{'s' * (devices != 1)}, {records:,} record{'s' * (records != 1)}"
    return f"{message['sees']} of {of}"


def worth(message: Mapping[str, Any]) -> str:
    """What a reconstruction is worth, and the epsilon that bounds all of them."""
    return (
        f"{message['psnr']:.1f} dB (a blind guess {message['psnr_blind']:.1f}), "
        f"labels {share(message['labels_right'])}, ε ≤ {upper_bound(float(message['epsilon']))}"
    )


def share(labels_right: float | None) -> str:
    """Of labels; a dash where fewer are sought than there are."""
    return "–" if labels_right is None else f"{labels_right:.0%}"


def _pictures(
    title: str, rows: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], note: str
) -> Figure:
    width = min(max((len(pictures) for _, pictures in rows), default=1), _MOST_PICTURES)
    height = max(len(rows), 1)
    figure = style.new_figure(max(_WORDS + _SIDE * width, 8.0), 1.0 + (2 * _SIDE + 0.15) * height)
    style.headline(figure, title)
    style.foot(figure, note)
    ratios = [_WORDS / _SIDE, *[1.0] * width]
    grid = figure.add_gridspec(2 * height, 1 + width, width_ratios=ratios)
    for number, (words, pictures) in enumerate(rows):
        margin = figure.add_subplot(grid[2 * number : 2 * number + 2, 0])
        margin.axis("off")
        style.write(margin, 0, 0.5, words, style.LABEL_SIZE, ha="left")
        for place, picture in enumerate(pictures[:width]):
            for line, kind in enumerate(("truth", "found")):
                axes = figure.add_subplot(grid[2 * number + line, 1 + place])
                _show(axes, picture[kind])
    return figure


def _show(axes: Axes, levels: Sequence) -> None:
    image = np.array(levels, dtype=np.uint8)
    grey = image.shape[-1] == 1
    axes.imshow(image[..., 0] if grey else image, cmap="gray" if grey else None, vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])


def memberships(record: Mapping[str, Any]) -> Figure:
    """Members that are found over others that are taken for some, and what the ledger allows."""
    figure = style.new_figure(7.0, 5.0)
    axes = figure.subplots()
    ends = [_LOWEST_RATE, 1]
    axes.plot(ends, ends, color=style.COLOURS[0], linestyle=":", label="guessing")
    for number, membership in enumerate(record["memberships"]):
        fpr, tpr, bound = np.array(membership["curve"])
        colour = style.COLOURS[1 + number]
        name = record["observers"][membership["observer"]]
        label = f"{name}: AUC {membership['auc']:.3f}"
        axes.plot(fpr, np.maximum(tpr, _LOWEST_RATE), color=colour, label=label)
        label = f"the most there can be: ε ≤ {upper_bound(float(membership['epsilon']))}"
        axes.plot(fpr, bound, color=colour, linestyle="--", label=label)
    axes.set(xscale="log", yscale="log", xlim=(_LOWEST_RATE, 1), ylim=(_LOWEST_RATE, 1.05))
    style.tidy(axes, "others taken for members", "members found")
    style.title(
        axes,
        f"LiRA: {record['algorithm']} on {record['dataset']}, {record['targets']:,} records, "
        f"{record['shadows']} shadows",
    )
    style.foot(figure, record["note"])
    axes.legend(fontsize=style.TICK_SIZE, frameon=False, loc="lower right")
    return figure


# What heads a column of numbers, the key that they have in each row, and how one is written.
Column = tuple[str, str, Callable[[Any], str]]


def _print_columns(
    title: str,
    heading: str,
    names: Sequence[str],
    columns: Sequence[Column],
    rows: Iterable[Mapping[Any, Any]],
    caption: str | None,
    console: Console | None,
) -> None:
    """Print a column of names below a heading, and of each row its numbers."""
    table = new_table(title, [heading], [header for header, _, _ in columns], caption)
    table.columns[0].min_width = 24 if heading == "message" else None
    for name, row in zip(names, rows, strict=True):
        table.add_row(Text(name), *(text(row[key]) for _, key, text in columns))
    show(table, console)


def _at_most(value: float | str) -> str:
    return upper_bound(float(value))


_OBSERVED = "observer, and the devices it observes"
_WHOLE, _SHORT = "{:,}".format, "{:.3g}".format
_AUDITED: Sequence[Column] = (
    ("releases", "releases", _WHOLE),
    ("copies", "repetitions", _WHOLE),
    ("ε at least", "epsilon_lower", lower_bound),
    ("ε at most", "epsilon_upper", upper_bound),
    ("ε nominal", "epsilon_nominal", nominal),
)
_TRIED: Sequence[Column] = (
    ("tried", "neighbours", _WHOLE),
    ("largest shift found", "found", _SHORT),
    ("allowed", "allowed", _SHORT),
)
_OF_MESSAGES: Sequence[Column] = (
    ("images", "images", str),
    ("PSNR", "psnr", "{:.1f}".format),
    ("blind", "psnr_blind", "{:.1f}".format),
    ("SSIM", "ssim", "{:.3f}".format),
    ("labels", "labels_right", share),
    ("ε at most", "epsilon", _at_most),
)
_OF_MEMBERS: Sequence[Column] = (
    ("AUC", "auc", "{:.3f}".format),
    ("at most", "auc_most", upper_bound),
    ("found at 1 %", "tpr_at_0.01", "{:.4f}".format),
    ("at most", "tpr_most_at_0.01", upper_bound),
    ("found at 0.1 %", "tpr_at_0.001", "{:.4f}".format),
    ("at most", "tpr_most_at_0.001", upper_bound),
    ("ε at least", "epsilon_lower", lower_bound),
    ("ε at most", "epsilon", _at_most),
)


def print_audit(bounds: pd.DataFrame, console: Console | None = None) -> None:
    """An audit in the terminal: what each observer learns at least, at most, and should.

    Args:
        bounds: a row an observer, with the columns of `m2fdp.adversaries.audit.Bounds`.
    """
    first, most = bounds.iloc[0], bounds.iloc[int(bounds["repetitions"].argmax())]
    broken = bounds.loc[bounds["epsilon_lower"] > bounds["epsilon_upper"], "observer"]
    refuted = [f" The promise against {observer} is REFUTED." for observer in broken]
    names = list(bounds["observer"] + ": " + bounds["position"])
    caption = (
        f"Each lower bound holds at {first['confidence']:.0%} confidence, whenever an audit stops; "
        f"with {most['repetitions']:,} copies of each world none can pass "
        f"{lower_bound(most['largest_lower'])}.{''.join(refuted)}"
    )
    title = f"Audit at T = {first['rounds']}, δ = {first['delta']:g}"
    rows = bounds.to_dict("records")
    _print_columns(title, _OBSERVED, names, _AUDITED, rows, caption, console)


def print_neighbours(tried: pd.DataFrame, console: Console | None = None) -> None:
    """An audit by neighbours in the terminal: what each observer was shown of them, and may be.

    Args:
        tried: a row an observer, with the columns of `m2fdp.adversaries.neighbours.Tried`.
    """
    title = "Audit by neighbours: shifts in standard deviations of the noise"
    caption = (
        "Of one release, behind the noise that was really drawn, which is known to within "
        f"{tried['error'].max():.1%}."
    )
    rows = tried.to_dict("records")
    names = [
        f"{row['observer']}: {row['position']}"
        + ("" if row["held"] else f": DOES NOT HOLD, {row['finding']}")
        for row in rows
    ]
    _print_columns(title, _OBSERVED, names, _TRIED, rows, caption, console)


def print_bound(table: pd.DataFrame, console: Console | None = None) -> None:
    """The bounds after the last round in the terminal, beside the means that they bound."""
    last = table.iloc[-1]
    title = f"Mean squared gradient norm over {counted(int(last['round']), 'round')}"
    result = new_table(title, ["bound"], ["at most", "measured"])
    for name, bound, measured in (
        ("Theorem 1 as printed; plain mean", "bound", "mean_gradient_norm_sq"),
        ("proven here; mean weighted by step size", "proven_bound", "weighted_gradient_norm_sq"),
    ):
        result.add_row(Text(name), upper_bound(last[bound]), f"{last[measured]:.3g}")
    show(result, console)


def print_clock(rounds: pd.DataFrame, console: Console | None = None) -> None:
    """The mean round of the configured plan."""
    columns = ["dtfl_s", "oracle_s", "fedavg_s", "splitfed_s", "fedgkt_s"]
    dtfl, *others = (f"{seconds:.1f} s" for seconds in rounds[columns].mean())
    show(
        f"{counted(len(rounds), 'round')} planned, times of {rounds['model'].iloc[0]}: on average "
        "{} (times known before: {}, FedAvg {}, SplitFed {}, FedGKT {}).".format(dtfl, *others),
        console,
    )


def print_attack(record: Mapping[str, Any], console: Console | None = None) -> None:
    """What was taken, with epsilon beside every number, and what it does not show."""
    who = ", ".join(record["observers"].values())
    bound = upper_bound(promised_epsilon(record))
    title = f"{record['method']} by {who}; the run's {record['guarantee']} ε is {bound}"
    if "memberships" in record:
        rows = record["memberships"]
        names = [record["observers"][row["observer"]] for row in rows]
        _print_columns(title, "observer", names, _OF_MEMBERS, rows, record["note"], console)
    else:
        names, rows = list(map(sent, record["messages"])), record["messages"]
        _print_columns(title, "message", names, _OF_MESSAGES, rows, record["note"], console)
