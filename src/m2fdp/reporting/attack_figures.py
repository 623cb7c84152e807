"""Figures of attacks: what was reconstructed beside what was there, and who was told from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from m2fdp.core.formatting import upper_bound
from m2fdp.reporting import style

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
        (f"{message['sees']} of {counted(message)}\n{worth(message)}", message["pictures"])
        for message in record["messages"][:_MOST_ROWS]
    ]
    who = ", ".join(record["observers"].values())
    title = (
        f"Reconstructed by {who} ({record['method']}, {record['dataset']}, {record['model']}): "
        "what was there, and below it what was found"
    )
    return _pictures(title, rows, record["note"])


def board(title: str, records: Mapping[str, Mapping[str, Any]]) -> Figure:
    """What one observer reconstructs of the first message in several runs, a row each.

    Args:
        records: each run's record by its row's name.
    """
    rows = []
    for name, record in records.items():
        message = record["messages"][0]
        rows.append((f"{name}\n{message['sees']}\n{worth(message)}", message["pictures"]))
    note = next(iter(records.values()))["note"] if records else ""
    return _pictures(title, rows, note)


def counted(message: Mapping[str, Any]) -> str:
    """How many devices and records are in a message."""
    devices, records = message["devices"], message["records"]
    return f"{devices} device{'s' * (devices != 1)}, {records:,} record{'s' * (records != 1)}"


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
    figure = style.new_figure(
        max(_WORDS + _SIDE * width, 8.0), 1.0 + (2 * _SIDE + 0.15) * max(len(rows), 1)
    )
    style.headline(figure, title)
    style.foot(figure, note)
    grid = figure.add_gridspec(
        2 * max(len(rows), 1), 1 + width, width_ratios=[_WORDS / _SIDE, *[1.0] * width]
    )
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
