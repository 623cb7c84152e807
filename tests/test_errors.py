"""What is behind an error."""

from m2fdp.errors import chain


def test_a_chain_that_is_a_ring_ends():
    """Libraries raise an error from what was raised while they handled it."""
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__context__ = other, one
    assert list(chain(one)) == [one, other]
    assert list(chain(None)) == []
