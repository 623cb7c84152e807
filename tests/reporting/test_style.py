"""Looks are fixed and distinct."""

from __future__ import annotations

import pytest

from m2fdp.algorithms import ALGORITHMS
from m2fdp.errors import InputError
from m2fdp.reporting.style import COLOURS, look, palette_look


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


def test_unknown_algorithm():
    with pytest.raises(InputError, match="fedprox"):
        look("fedprox")
