"""What an error says, and what is behind it."""

import pickle

import numpy as np
import pytest

from m2fdp.errors import BLOCK, InputError, chain


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


def test_a_chain_that_is_a_ring_ends():
    """Libraries raise an error from what was raised while they handled it."""
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__context__ = other, one
    assert list(chain(one)) == [one, other]
    assert list(chain(None)) == []
