"""A user's own code: where it is found, and how its mistakes are told."""

import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from m2fdp.checkpoints import own_sources
from m2fdp.core.errors import InputError
from m2fdp.given import own_code


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
    write("from m2fdp.core.data.dataset import Dataset\n\n\ndef make():\n    return Dataset('x')\n")
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


PACKAGE = {
    "own_things.py": """
import json, torch
from own_package import near
from .beyond import nothing

def loss():
    import own_late
    return importlib.import_module("own_" + "hidden")
""",
    "own_package/__init__.py": "",
    "own_package/near.py": "from . import far\nfrom .. import above\n",
    "own_package/far.py": "try:\n    import own_missing\nexcept ImportError:\n    pass\n",
    "own_late.py": "this is no Python",
    "own_unused.py": "",
}


def forget():
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


@pytest.fixture
def package(write):
    """What `PACKAGE` says, of which nothing is imported; a function that changes a file."""
    forget()
    for name, text in PACKAGE.items():
        Path("..", name).parent.mkdir(exist_ok=True)
        write(text, name)
    yield write
    forget()


def digests():
    return {
        name: source.digest for name, source in own_sources.sources(["own_things:loss"]).items()
    }


def test_own_code_comes_from_all_that_it_may_import(package):
    before = digests()
    everything = {"own_things", "own_package", "own_package.near", "own_package.far", "own_late"}
    assert set(before) == everything and all(before.values())
    for name, file in (("own_package.far", "own_package/far.py"), ("own_late", "own_late.py")):
        package(PACKAGE[file] + "# changed", file)
        changed = {module for module, digest in digests().items() if digest != before[module]}
        assert changed == {name}
        package(PACKAGE[file], file)
    package("x = 1", "own_missing.py")
    assert digests().keys() - before.keys() == {"own_missing"}
    assert not [name for name in sys.modules if name.startswith("own_")]


def test_what_is_loaded_counts_as_it_was_when_it_was_loaded(package):
    package("import own_package\n\n\ndef loss():\n    return 1\n", "own_things.py")
    own_code.load("model.loss", "own_things:loss")
    before = digests()
    package("import own_package\n\n\ndef loss():\n    return 22\n", "own_things.py")
    package("x = 1\n", "own_package/__init__.py")
    assert digests() == before
    forget()
    own_code.load("model.loss", "own_things:loss")
    after = digests()
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def test_what_is_imported_by_a_name_that_is_made_up_is_seen_once_it_is_loaded(package):
    package("import importlib\n\n\ndef loss():\n    importlib.import_module('own_' + 'unused')\n")
    loss = own_code.load("model.loss", "own_things:loss")
    assert "own_unused" not in own_sources.imported_since()
    with own_code.guarded("model.loss", "own_things:loss", "can't be called"):
        loss()
    assert {"own_things", "own_unused"} <= set(own_sources.imported_since())


def test_a_module_without_a_file_of_its_own_has_no_digest(tmp_path, monkeypatch, package):
    with ZipFile(tmp_path / "zipped.zip", "w") as archive:
        archive.writestr("own_zipped.py", "def loss():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "zipped.zip"))
    own_code.load("model.loss", "own_zipped:loss")
    monkeypatch.setitem(sys.modules, "own_notebook", ModuleType("own_notebook"))
    for name in ("own_zipped", "own_notebook"):
        assert {n: s.digest for n, s in own_sources.sources([f"{name}:loss"]).items()} == {name: ""}


def test_a_room_of_this_package_is_nobodys_own():
    assert not own_code.is_theirs(own_sources.__file__)
    assert own_sources.sources(["m2fdp.checkpoints.files"]) == {}
