"""What an error says, and what is behind it."""

import pickle

import numpy as np
import pytest

from m2fdp.core.errors import BLOCK, InputError, among, chain, did_you_mean


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (0, "a.b = 0: wrong"),
        ("0", "a.b = '0': wrong"),
        (np.arange(2), "a.b = array([0, 1]): wrong"),
        (BLOCK, "a.b: wrong"),  # the remedy names the keys
    ],
)
def test_a_line_names_key_value_and_remedy(value, line):
    error = InputError("a.b", value, "wrong")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == line


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("linaer", "linear, CNN; did you mean linear?"),
        ("cnn", "linear, CNN; did you mean CNN?"),
        ("tree", "linear, CNN"),
        (None, "linear, CNN"),
    ],
)
def test_known_names_are_listed_with_the_one_that_is_meant(word, line):
    assert among(word, ["linear", "CNN"]) == line


def test_where_no_name_is_known_none_is_meant():
    assert among("x", []) == "(none)"
    assert among("x", [], "(none here)") == "(none here)"


def test_a_number_is_not_meant_for_one_that_is_spelled_alike():
    assert did_you_mean(12, ["1", "2"]) == did_you_mean("1.0", ["10"]) == ""


def test_a_chain_that_is_a_ring_ends():
    """Libraries raise an error from what was raised while they handled it."""
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__context__ = other, one
    assert list(chain(one)) == [one, other]
    assert list(chain(None)) == []
