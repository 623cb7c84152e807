"""Looks are fixed and distinct."""

import pytest

from m2fdp.core.algorithms import ALGORITHMS
from m2fdp.reporting.style import COLOURS, look, new_figure, palette_look, plain_log


def test_algorithms_differ_in_colour_line_and_marker():
    looks = [look(name) for name in ALGORITHMS]
    for part in ("colour", "marker"):
        assert len({getattr(one, part) for one in looks}) == len(ALGORITHMS)
    # J's four, which its figures compare, differ in line too.
    assert len({one.line for one in looks[:4]}) == 4


def test_variants_of_an_algorithm_keep_its_colour_only():
    first, second = look("m2fdp"), look("m2fdp", variant=1)
    assert first.colour == second.colour
    assert first.line != second.line and first.marker != second.marker


def test_lines_that_stand_for_no_algorithm_are_distinct_and_differ_in_colour_first():
    looks = [palette_look(number) for number in range(28)]
    assert len({(one.colour, one.line) for one in looks}) == len(looks)
    assert len({one.colour for one in looks[: len(COLOURS)]}) == len(COLOURS)
    assert looks[0].line == "-"


@pytest.mark.parametrize(
    ("low", "high", "written"),
    [(0.6, 4, ["0.6", "1", "2", "3", "4"]), (2.7, 6, ["3", "4", "5", "6"]), (0.01, 2e6, None)],
)
def test_logarithmic_axes_are_written_without_powers_of_ten(low, high, written):
    figure = new_figure(4, 3)
    axes = figure.subplots()
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    plain_log(axes.yaxis)
    figure.draw_without_rendering()
    labels = [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]
    numbers = sorted({text.get_text().replace(",", "") for text in labels} - {""}, key=float)
    numbers_inside = [number for number in numbers if low <= float(number) <= high]
    assert numbers_inside == (written or [f"{10.0**power:.10g}" for power in range(-2, 7)])
