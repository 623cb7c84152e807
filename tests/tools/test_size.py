"""The table of `make size`, and its ceilings."""

import pytest
from tools.size import Size, above, by_room, size_of

from tools import size

SOURCE = '''"""A text

of three lines."""

# A comment.
A = 1  # beside code


def f():
    """One line."""
    return """no
text"""
'''


def test_lines_of_code_and_of_texts_are_told_apart():
    assert size_of(SOURCE) == Size(lines=12, code=4, texts=5)


def test_the_rooms_of_a_package(tmp_path):
    (tmp_path / "room" / "inner").mkdir(parents=True)
    (tmp_path / "core" / "inner").mkdir(parents=True)
    for name in ("top.py", "room/a.py", "room/inner/b.py", "core/a.py", "core/inner/b.py"):
        (tmp_path / name).write_text("A = 1\n\n", encoding="utf-8")
    two = Size(2, 1, 0)
    inner = {"core/ground": two, "core/inner": two}
    assert by_room(tmp_path) == {size.BESIDE: two, "room": two + two, "core": two + two} | inner
    assert size.whole(by_room(tmp_path)) == Size(10, 5, 0)


@pytest.mark.parametrize(
    ("most", "lines"),
    [
        ({"a": 3, "b": 4, "src": 7, "keys": 2}, []),
        ({"a": 2, "b": 4, "src": 7, "keys": 2}, ["a has 3, its ceiling is 2"]),
        ({"a": 3, "src": 7, "keys": 2}, ["b has 4 and no ceiling"]),
        ({"a": 3, "b": 4, "src": 6, "keys": 1}, ["src has 7, its", "keys has 2, its ceiling is 1"]),
    ],
)
def test_what_is_above_its_ceiling_is_a_line(most, lines):
    found = above({"a": Size(3), "b": Size(4)}, 2, most)
    assert len(found) == len(lines)
    assert all(text in line for text, line in zip(lines, found, strict=True))


def test_nothing_is_above_its_ceiling():
    assert above(by_room(), size.n_keys(), size.ceilings()) == []
