"""What a reader of the terminal sees while training goes on."""

import io
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from m2fdp.pipelines.training.tracking import tracked_progress
from m2fdp.simulation.simulation import State
from m2fdp.simulation.training import Progress, Round, RoundRecord


@pytest.fixture
def screen(monkeypatch):
    """A function that makes stderr a terminal or a file, and what is written to it."""

    def make(terminal):
        written = io.StringIO()
        console = Console(file=written, force_terminal=terminal, width=120, color_system=None)
        monkeypatch.setattr("m2fdp.pipelines.training.tracking.Console", lambda stderr: console)
        return written

    return make


def train(start=None, epsilon=1.2345, first=1):
    with tracked_progress(10, start, Path("unsent.json")) as observer:
        for round_ in range(first, first + 3):
            observer.on_round(Round(State(round_, torch.zeros(1)), 1.0, 1.0), 0.01)
            observer.on_evaluation(RoundRecord(round_, 0.25, 2.0, 1.0, 1.0, epsilon))


def test_a_terminal_shows_rounds_accuracy_epsilon_and_time_left(screen):
    written = screen(terminal=True)
    train()
    last = written.getvalue()
    assert "3/10" in last and "accuracy 0.250" in last and "ε 1.24" in last  # rounded up
    assert ":" in last.split("ε 1.24")[-1]  # 0:00:00 or -:--:--


def test_a_run_that_goes_on_counts_the_rounds_before(screen):
    written = screen(terminal=True)
    train(Progress(State(6, torch.zeros(1)), ()), math.nan, first=7)
    last = written.getvalue()
    assert "9/10" in last and "3/10" not in last and "ε" not in last


def test_elsewhere_nothing_is_written(screen):
    written = screen(terminal=False)
    train()
    assert written.getvalue() == ""
