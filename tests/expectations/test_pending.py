"""Verdicts are waited for when they are due."""

import pytest

from m2fdp.expectations.pending import beside, conclude, settle


def refuse():
    raise ValueError("broken")


def test_outside_a_block_nobody_goes_on_without_the_verdict():
    with pytest.raises(ValueError, match="broken"):
        conclude(refuse)
    settle()


def test_inside_a_block_the_verdict_waits_for_settle():
    done = []
    with beside():
        conclude(lambda: done.append(1))
        assert done == []
        settle()
        settle()
        assert done == [1]


def test_a_refusal_stays_one_until_the_block_ends():
    with beside():
        conclude(refuse)
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                settle()
    settle()
