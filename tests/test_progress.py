"""What work that takes long says where nobody sees a bar."""

import io
import queue

import pytest
from rich.console import Console

from m2fdp import progress


@pytest.mark.parametrize(
    ("done", "line"),
    [
        ((), "features: 60 s so far"),
        ((0, 4000), "features: 60 s so far"),
        ((1000, 4000), "features: 1,000 of 4,000, about 3 min left"),
    ],
)
def test_what_is_left_is_told_once_some_is_done(done, line):
    assert progress.so_far("features", 60.0, *done) == line


def test_off_a_terminal_lines_say_how_far_the_items_are(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.001)
    lines: queue.Queue[str] = queue.Queue()
    with progress.items_bar("features", Console(file=io.StringIO()), lines.put) as show:
        assert lines.get(timeout=60) == "features: 0 s so far"
        show(3, 4)
        while not lines.get(timeout=60).startswith("features: 3 of 4, about "):
            pass


def test_a_terminal_has_the_bar_and_no_lines(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    lines, written = [], io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, color_system=None)
    with progress.items_bar("features", console, lines.append) as show:
        show(3, 4)
    assert "3/4" in written.getvalue() and not lines


def test_what_is_over_before_its_first_line_is_silent():
    lines = []
    with progress.telling(lines.append, str, first_after_s=60.0):
        pass
    assert lines == []
