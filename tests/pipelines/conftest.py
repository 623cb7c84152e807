"""Trainings that end before their last round."""

import pytest

from m2fdp.core.engine.tree_process import TreeProcess


def fail():
    raise OSError("disk full")


@pytest.fixture
def cut(monkeypatch):
    """A function that makes the next trainings in this process do `end()` once a round is computed
    and nothing of it kept; of None they go on to their end."""
    whole = {}

    def at(last, end=fail, process=TreeProcess):
        round_ = whole.setdefault(process, process.round)

        def cut_off(self, state, plan):
            after = round_(self, state, plan)
            if after.round == last:
                end()
            return after

        monkeypatch.setattr(process, "round", cut_off)

    return at
