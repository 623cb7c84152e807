"""What keeps the house easy to read: small modules, short signatures, layers, fenced borders."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from m2fdp.core.privacy.mechanisms import Mechanism
from m2fdp.core.privacy.sight import KINDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "m2fdp"
MODULES = sorted(PACKAGE.rglob("*.py"))

MOST_LINES = 450
MOST_PARAMETERS = 8
# `Tensor._version` counts a tensor's changes in place; torch has no public name for it.
FENCED = {
    "pipelines/configuration.py",
    "pipelines/mlflow_internals.py",
    "core/engine/chains.py",
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The public functions and methods of a module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not node.name.startswith("_") or node.name == "__init__":
                yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(node)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def foreign_private_names(tree: ast.AST) -> Iterator[str]:
    """Names with one leading underscore that a module takes from other objects or packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _private(node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            # os._exit is documented.
            if owner not in ("self", "cls") and (owner, node.attr) != ("os", "_exit"):
                yield node.attr
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            yield from (one for one in [*parts, *(a.name for a in node.names)] if _private(one))


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_small_and_keeps_to_public_names(path):
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES
    if name_of(path) not in FENCED:
        assert list(foreign_private_names(ast.parse(text))) == []


def test_a_round_is_read_from_top_to_bottom():
    assert (PACKAGE / "core/engine/round.py").read_text().count("\n") <= 150


def test_no_public_function_has_many_parameters():
    long = {
        f"{name_of(path)}: {function.name}"
        for path in MODULES
        for function in functions(ast.parse(path.read_text()))
        if len(parameters(function)) > MOST_PARAMETERS
    }
    assert long == set()


def test_functions_of_privacy_have_few_parameters():
    """What a promise rests on is one value (`Premises`)."""
    long = {
        f"{name_of(path)}: {function.name}"
        for path in MODULES
        for function in functions(ast.parse(path.read_text()))
        if path.is_relative_to(PACKAGE / "core" / "privacy") and len(parameters(function)) > 5
    }
    assert long == set()


def test_a_mechanism_has_eleven_members():
    members = [name for name in vars(Mechanism) if not name.startswith("_")]
    assert len(members) <= 11


def test_who_reads_what_is_said_in_one_file():
    """Privacy and attacks ask the table: an observer's name stands in neither, but for the words
    that are layers' or whose sums are meant, too."""
    told = {
        f"{name_of(path)}:{node.lineno} {node.value}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if name_of(path).startswith(("core/privacy/", "adversaries/", "zones/", "global_dp/"))
        and not name_of(path).endswith(("privacy/sight.py", "adversaries/config.py", "/room.py"))
        and isinstance(node, ast.Constant)
        and node.value in KINDS.keys() - {"cloud", "public"}
    }
    assert told == set()


ROOMS_WORDS = re.compile(
    r"(?<![a-z])(zones?|super[ -]nodes?|elect(?:ed|ions?|s)|tiers?|scaffold|ray|grpc|kedro|mlflow)"
    r"(?![a-z])",
    re.IGNORECASE,
)
# What is left, and may only become less: lists of all names.
ROOMS_WORDS_LEFT = {
    "config/keys.py": {"elected", "super nodes"},  # whom a user may distrust
}


def words_of_rooms(tree: ast.AST) -> set[str]:
    """Words of rooms in a module's names and texts."""
    texts = [
        value.replace("_", " ")
        for node in ast.walk(tree)
        for key in ("id", "attr", "arg", "name", "value")
        if isinstance(value := getattr(node, key, None), str)
    ]
    return {word.lower() for text in texts for word in ROOMS_WORDS.findall(text)}


def test_the_core_says_no_word_of_a_room():
    core = PACKAGE / "core"
    for path in sorted(core.rglob("*.py")):
        name = path.relative_to(core).as_posix()
        found = words_of_rooms(ast.parse(path.read_text()))
        assert found <= ROOMS_WORDS_LEFT.get(name, set()), name


def contracts():
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {
        contract["name"].split(":")[0].split(",")[0]: contract for contract in linter["contracts"]
    }


@pytest.mark.parametrize(("name", "folder"), [("Three floors", "."), ("The core", "core")])
def test_every_room_and_module_has_its_layer(name, folder):
    layers = contracts()[name]
    listed = [one.strip() for layer in layers["layers"] for one in layer.split("|")]
    there = {path.stem for path in (PACKAGE / folder).glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")}
    assert sorted(listed) == sorted(there)
    assert layers["exhaustive"]


def test_all_below_the_frame_know_no_framework():
    names = [layer.split(" | ") for layer in contracts()["Three floors"]["layers"]]
    frame = ["expectations" in layer for layer in names].index(True)
    below = {f"m2fdp.{name}" for layer in names[frame + 1 :] for name in layer}
    assert set(contracts()["Core and rooms know no framework"]["source_modules"]) == below


def test_the_picture_of_the_rooms_is_that_of_the_contract():
    """`python docs/rooms.py` draws it anew."""
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "rooms.py")
    rooms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rooms)
    assert rooms.PICTURE.read_text() == rooms.picture()
    text = (ROOT / "docs" / "architecture.md").read_text()
    for layer in rooms.layers():
        for name in layer:
            assert rooms.sentence(name), name
    assert "images/rooms.svg" in text


def texts_of_some_locale(tree: ast.AST) -> Iterator[int]:
    """Lines that read or write text without saying how it is encoded."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and "encoding" not in {word.arg for word in node.keywords}:
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            inner = [one for argument in node.args for one in ast.walk(argument)]
            modes = [one.value for one in inner if isinstance(one, ast.Constant)]
            binary = any("b" in mode for mode in modes if isinstance(mode, str))
            of_system = ast.unparse(node.func) in ("os.open", "source.open")
            if name in ("read_text", "write_text") or name == "open" and not binary | of_system:
                yield node.lineno


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_are_utf_8_whatever_the_locale_says(path):
    assert not list(texts_of_some_locale(ast.parse(path.read_text(encoding="utf-8"))))
