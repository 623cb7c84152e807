"""A bound is never shown smaller than it is, and parameters read as they were written."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.formatting import counted, duration, parameter, upper_bound


def test_one_thing_is_counted_in_the_singular():
    counts = [counted(n, "round") for n in (0, 1, 2, 2000)]
    assert [counted(n, "class", "classes") for n in (1, 2)] == ["1 class", "2 classes"]
    assert counts == ["0 rounds", "1 round", "2 rounds", "2,000 rounds"]


@given(st.floats(min_value=1e-9, max_value=1e9), st.integers(1, 6))
def test_a_bound_is_rounded_up_by_less_than_one_unit_of_its_last_digit(value, digits):
    shown = Decimal(upper_bound(value, digits))
    exact = Decimal(value)
    unit = Decimal(10) ** (exact.adjusted() - digits + 1)
    assert exact <= shown < exact + unit


@given(st.floats(min_value=1e-9, max_value=1e9), st.floats(min_value=1e-9, max_value=1e9))
def test_rounding_keeps_the_order_of_bounds(one, other):
    smaller, larger = sorted([one, other])
    assert Decimal(upper_bound(smaller)) <= Decimal(upper_bound(larger))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3.9912, "4.00"),
        (4.0, "4"),
        (1.001, "1.01"),
        (0.30011, "0.301"),
        (51.41, "51.5"),
        (1976.2, "1980"),
        (0.0, "0"),
        (2.001e-7, "2.01e-7"),
        (math.inf, "∞"),
    ],
)
def test_bounds_read_well(value, shown):
    assert upper_bound(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.5, "0.5"), (1e-05, "1e-05"), (math.nan, "–"), ("[0.5]", "[0.5]"), (3, "3")],
)
def test_parameters_read_as_they_were_written(value, shown):
    assert parameter(value) == shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(119, "119 s"), (121, "2 min"), (7000, "117 min"), (9000, "2.5 h")]
)
def testdurations(seconds, text):
    assert duration(seconds) == text
