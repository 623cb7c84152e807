"""Figures on their way to files: drawn once for equal inputs, and no words cut off."""

import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from m2fdp.reporting import figures
from m2fdp.reporting.pictures import Drawing, picture, write_pdf

CALLS = []


def draw(table, title):
    CALLS.append(title)
    figure = Figure(figsize=(2, 1))
    figure.text(0.1, 0.5, f"{title} {table['a'].sum()}")
    return figure


@pytest.fixture(autouse=True)
def nothing_drawn():
    CALLS.clear()
    picture.cache_clear()


def saved(drawing, **options):
    buffer = io.BytesIO()
    drawing.savefig(buffer, **options)
    return buffer.getvalue()


def test_equal_drawings_are_drawn_once_wherever_their_tables_come_from():
    table = pd.DataFrame({"a": [1, 2]})
    other_table = table.copy()
    other_table.attrs["file"] = "of another cell"
    assert saved(Drawing.of(draw, table, "x")) == saved(Drawing.of(draw, other_table, "x"))
    assert CALLS == ["x"]
    assert other_table.attrs  # the caller's are left to it


def test_other_values_titles_and_formats_are_drawn_anew():
    table = pd.DataFrame({"a": [1, 2]})
    first = saved(Drawing.of(draw, table, "x"))
    assert saved(Drawing.of(draw, table + 1, "x")) != first
    assert saved(Drawing.of(draw, table, "y")) != first
    assert saved(Drawing.of(draw, table, "x"), format="pdf").startswith(b"%PDF")
    assert CALLS == ["x", "x", "y", "x"]


def test_equal_figures_are_the_same_pdf_in_letters_that_publishers_take(tmp_path):
    files = tmp_path / "a.pdf", tmp_path / "b.pdf"
    for file, seconds in zip(files, (1, 2), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SOURCE_DATE_EPOCH", str(10**9 * seconds))  # the clock, to Matplotlib
            write_pdf(Drawing.of(draw, pd.DataFrame({"a": [1]}), "x").figure(), file)
    one, other = (file.read_bytes() for file in files)
    assert one == other and one.startswith(b"%PDF")
    assert b"/Subtype /Type3" not in one and b"/FontFile2" in one


def rounds(epsilon, accuracy):
    n = len(accuracy)
    columns = {
        "round": range(1, n + 1),
        "accuracy": accuracy,
        "epsilon": np.linspace(0, epsilon, n),
    }
    return pd.DataFrame(columns)


def ledger(epsilon, names):
    rows = [
        {
            "position": position,
            "kind": kind,
            "observer": kind,
            "epsilon": epsilon * (1 + i),
            "devices": 1000,
            "distrusted": i == 0,
            "delta": 1e-5,
        }
        for position in names
        for i, kind in enumerate(["servers", "far_devices", "uplinks"])
    ]
    return pd.DataFrame(rows)


CASES = {
    "accuracy": lambda: figures.accuracy_curve(rounds(4.0, [0.1, 0.9]), "M²FDP, seed 0"),
    "accuracy alone": lambda: figures.accuracy_curve(rounds(np.nan, [0.1, 0.9]), "HFL, seed 0"),
    "close accuracies": lambda: figures.accuracy_curve(rounds(1e6, [0.87, 0.8703]), "M²FDP"),
    "10 classes": lambda: figures.confusion_matrix(np.eye(10, dtype=int) * 7, list("0123456789")),
    "100 classes": lambda: figures.confusion_matrix(
        np.eye(100, dtype=int), [str(n) for n in range(100)]
    ),
    "2 classes": lambda: figures.confusion_matrix(np.eye(2, dtype=int) * 12345, ["0", "1"]),
    "labels": lambda: figures.label_distribution(pd.DataFrame(np.ones((50, 10), int))),
    "many labels": lambda: figures.label_distribution(pd.DataFrame(np.full((3, 100), 12345))),
    "ledger": lambda: figures.ledger_heat_map(ledger(4.0, ["below an untrusted parent"])),
    "wide ledger": lambda: figures.ledger_heat_map(
        ledger(1e4, ["below a trusted server of layer 1, q = 0.25", "elsewhere"])
    ),
    "epsilons": lambda: figures.epsilon_over_rounds(
        pd.DataFrame({"round": [1, 2], "servers": [3.9, 4.0], "cloud": [3.0, 3.5]}), 4.0
    ),
    "epsilon of decades": lambda: figures.epsilon_over_rounds(
        pd.DataFrame({"round": [1, 2], "servers": [0.1, 4e4], "uplinks": [np.inf, np.inf]}), 4.0
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_words_of_a_figure_are_cut_off_or_cover_others(name):
    figure = CASES[name]()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    width, height = canvas.get_width_height()
    boxes = {}
    for text in figure.findobj(lambda artist: isinstance(artist, Text)):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent(renderer)
            if box.x1 >= 0 and box.y1 >= 0:
                boxes[text] = box
    axes = figure.axes
    outer = [axis.label for each in axes for axis in (each.xaxis, each.yaxis)]
    outer += [each.child_axes[0].yaxis.label for each in axes if each.child_axes]
    ticks = [
        label
        for each in [*axes, *(child for each in axes for child in each.child_axes)]
        for axis in (each.xaxis, each.yaxis)
        for label in axis.get_ticklabels(which="both")
        if label in boxes and not _beyond(axis, label)
    ]
    # Powers of ten stand above a panel.
    titles = [title for each in axes for title in (each.title, each._left_title)]
    outer += [axis.offsetText for each in axes for axis in (each.xaxis, each.yaxis)]
    outer += titles
    visible_texts = [text for text in outer if text in boxes]
    assert visible_texts and ticks
    for text in visible_texts + ticks:
        box = boxes[text]
        assert box.x0 > -2 and box.y0 > -2 and box.x1 < width + 2 and box.y1 < height + 2, text
    for label in visible_texts:
        others = [*ticks, *(text for text in visible_texts if text is not label)]
        assert not any(boxes[label].overlaps(boxes[other]) for other in others), label.get_text()


def _beyond(axis, label):
    """Matplotlib keeps the labels of ticks that lie outside the axes, and draws none of them."""
    low, high = sorted(axis.get_view_interval())
    place = label.get_position()["xy".index(axis.axis_name)]
    return not low <= place <= high
