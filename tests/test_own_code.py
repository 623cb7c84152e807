"""A user's own code: where it is found, and how its mistakes are told."""

import sys
from pathlib import Path

import pytest

from m2fdp import own_code
from m2fdp.errors import InputError


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module `own_things` into a project's root; the test stands in a folder below."""
    (tmp_path / "pyproject.toml").touch()
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    yield lambda text, name="own_things.py": (tmp_path / name).write_text(text)
    for name in ("own_things", "own_helper"):
        sys.modules.pop(name, None)


def test_it_is_found_in_the_root_and_the_path_stays_as_it_was(write):
    before = list(sys.path)
    write("import own_helper\n\n\ndef double(x):\n    return own_helper.TWO * x\n")
    write("TWO = 2\n", "own_helper.py")
    assert own_code.load("some.key", "own_things:double")(4) == 8
    assert sys.path == before


def test_without_a_project_it_is_found_where_one_stands(tmp_path, monkeypatch, write):
    bare = tmp_path / "bare"
    bare.mkdir()
    (tmp_path / "pyproject.toml").unlink()
    (bare / "own_things.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.chdir(bare)
    assert own_code.root() == bare
    assert own_code.load("some.key", "own_things:double")(4) == 8


def test_what_it_imports_while_it_runs_is_found_too(write):
    write("def late():\n    import own_helper\n    return own_helper.TWO\n")
    write("TWO = 2\n", "own_helper.py")
    late = own_code.load("some.key", "own_things:late")
    with own_code.guarded("some.key", "own_things:late", "can't be called"):
        assert late() == 2


def test_things_of_another_kind(write):
    write("ROOT = __import__('pathlib').Path('x')\n")
    assert own_code.load("some.key", "own_things:ROOT", Path) == Path("x")
    with pytest.raises(InputError, match="some.key = 'own_things:ROOT': is no dict but PosixPath"):
        own_code.load("some.key", "own_things:ROOT", dict)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("x = 1\ny = 1 / 0\n", "own_things:f", r"ZeroDivisionError.*\(own_things.py, line 2\)$"),
        ("def f(:\n", "own_things:f", r"SyntaxError.*own_things.py, line 1"),
        ("import sys\nsys.exit('no')\n", "own_things:f", r"SystemExit: no \(own_things.py, line 2"),
        ("import json\njson.loads('{')\n", "own_things:f", r"JSONDecodeError.*\(own_things.py, li"),
        ("raise ValueError('a\\nb')\n", "own_things:f", r"ValueError: a b \(own_things.py, line 1"),
        ("f = 3\n", "own_things:f", "is no function but int"),
        ("", "own_things:f", "AttributeError.*'f'"),
        ("", "absent_things:f", "ModuleNotFoundError: .*absent_things'$"),
        ("", ":f", "can't be imported"),
        ("", "own_things:", "can't be imported"),
        ("", ".own_things:f", "can't be imported"),
    ],
)
def test_its_mistakes_are_one_line_with_the_users_own_place(write, text, name, words):
    before = list(sys.path)
    write(text)
    with pytest.raises(InputError, match=words) as caught:
        own_code.load("some.key", name)
    assert str(caught.value).startswith(f"some.key = {name!r}: ")
    assert "\n" not in str(caught.value)
    assert sys.path == before


def test_a_mistake_inside_a_call_of_this_package_is_told_by_the_users_line(write):
    write("from m2fdp.data.dataset import Dataset\n\n\ndef make():\n    return Dataset('x')\n")
    make = own_code.load("some.key", "own_things:make")
    with (
        pytest.raises(InputError, match=r"TypeError.*\(own_things.py, line 5\)"),
        own_code.guarded("some.key", "own_things:make", "can't be called"),
    ):
        make()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: 0, 0),
        (lambda a, b=1: 0, 2),
        (lambda a, *, b: 0, 1),
        (lambda *a: 0, None),
        (dict.fromkeys, 2),
        (type, None),
    ],
)
def test_arguments_are_counted(function, expected):
    assert own_code.n_positional(function) == expected
