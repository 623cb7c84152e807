"""What a reader of the terminal sees while training goes on."""

import io
import math
import time
from itertools import count
from unittest.mock import MagicMock

import pytest
import torch
from rich.console import Console

from m2fdp.core.engine.process import State
from m2fdp.core.engine.training import Progress, RoundRecord
from m2fdp.pipelines.training import tracked_progress


@pytest.fixture
def screen(monkeypatch):
    """A function that makes stderr a terminal or a file, and what is written to it."""

    monkeypatch.setattr("m2fdp.pipelines.training._logged", lambda run_id: frozenset())

    def make(terminal):
        written = io.StringIO()
        console = Console(file=written, force_terminal=terminal, width=120, color_system=None)
        monkeypatch.setattr("m2fdp.progress.Console", lambda stderr: console)
        return written

    return make


def train(start=None, epsilon=1.2345, first=1, clock=time.monotonic):
    with tracked_progress(10, start, MagicMock(), clock) as listener:
        for round_ in range(first, first + 3):
            listener.on_round(round_, {}, 0.01)
            listener.on_evaluation(RoundRecord(round_, 0.25, 2.0, 1.0, 1.0, epsilon))


def test_a_terminal_shows_rounds_accuracy_epsilon_and_time_left_and_no_lines(screen, caplog):
    written = screen(terminal=True)
    caplog.set_level("INFO", "m2fdp")
    train(clock=count(step=100).__next__)
    assert caplog.records == []
    last = written.getvalue()
    assert "3/10" in last and "accuracy 0.250" in last and "ε 1.24" in last  # rounded up
    assert ":" in last.split("ε 1.24")[-1]  # 0:00:00 or -:--:--


def test_a_run_that_goes_on_counts_the_rounds_before(screen):
    written = screen(terminal=True)
    train(Progress(State(6, torch.zeros(1)), ()), math.nan, first=7)
    last = written.getvalue()
    assert "9/10" in last and "3/10" not in last and "ε" not in last


def test_elsewhere_there_is_a_line_every_thirty_seconds(screen, caplog):
    written = screen(terminal=False)
    caplog.set_level("INFO", "m2fdp")
    clock = [1000.0]
    start = Progress(State(10, torch.zeros(1)))
    with tracked_progress(50, start, MagicMock(), lambda: clock[0]) as listener:
        for round_ in range(11, 31):  # 10 s each
            clock[0] += 10
            listener.on_round(round_, {}, 10.0)
            if round_ % 4 == 0:
                listener.on_evaluation(RoundRecord(round_, round_ / 100, 2.0, 1.0, 1.0, round_))
    assert written.getvalue() == ""
    assert [record.getMessage() for record in caplog.records] == [
        "Round 13 of 50, accuracy 0.120, ε 12, about 6 min left",
        "Round 16 of 50, accuracy 0.120, ε 12, about 6 min left",
        "Round 19 of 50, accuracy 0.160, ε 16, about 5 min left",
        "Round 22 of 50, accuracy 0.200, ε 20, about 5 min left",
        "Round 25 of 50, accuracy 0.240, ε 24, about 4 min left",
        "Round 28 of 50, accuracy 0.240, ε 24, about 4 min left",
    ]
