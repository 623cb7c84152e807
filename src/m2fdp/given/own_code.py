"""A user's own code, named as `package.module:name` and found in the project's root.

Whatever it does wrong, in being imported or called, ends in one line with its file and line.
"""

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from m2fdp.core.errors import InputError, one_line
from m2fdp.core.own_code import FORM, is_own
from m2fdp.core.rooms import brought

_MARK_OF_ROOT = "pyproject.toml"
# Where an error's frames are not the user's: this package, libraries and Python itself.
_NOT_THEIRS = tuple(
    f"{Path(path).resolve()}{os.sep}"
    for path in (
        str(Path(__file__).parents[1]),
        *(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")),
    )
)
_OF_LIBRARIES = {"site-packages", "dist-packages"}  # of the user's or the system's


BEFORE: set[str] = set()  # the modules that were there before any of the user's own


def file_of(name: str) -> str:
    """The file that own code named `package.module:name` stands in, as a user calls it."""
    return name.partition(":")[0].replace(".", "/") + ".py"


def load(key: str, name: str, kind: type | None = None) -> Any:
    """What a name of the form `package.module:name` stands for.

    Args:
        key: the configuration's key, for the error.
        kind: what it must be an instance of; None = a function.

    Raises:
        InputError: it has another form, can't be imported, or is something else.
    """
    module_name, _, attribute = name.partition(":")
    if not is_own(name):
        raise InputError(key, name, f"is no {FORM}")
    with guarded(key, name, "can't be imported"):
        importlib.invalidate_caches()  # the file may have been written a moment ago
        BEFORE.update(() if BEFORE else sys.modules)
        module = importlib.import_module(module_name)
        for told in brought("loaded"):
            told([name])
        thing = getattr(module, attribute)
    if not (callable(thing) if kind is None else isinstance(thing, kind)):
        expected = "function" if kind is None else kind.__name__
        raise InputError(key, name, f"is no {expected} but {type(thing).__name__}")
    return thing


@contextmanager
def guarded(key: str, name: str, what: str) -> Iterator[None]:
    """A block that runs own code: it finds the root's modules, and fails in one line.

    Raises:
        InputError: for whatever the code raises, `sys.exit` too: what has gone wrong, and the last
            place of the user's own.
    """
    with root_on_path():
        try:
            yield
        except (Exception, SystemExit) as error:
            raise InputError(key, name, f"{what}: {one_line(error)}{_place(error)}") from error


def n_positional(function: Callable[..., Any]) -> int | None:
    """How many positional arguments a function takes; None where any number, or unknown."""
    kinds = [each.kind for each in _parameters(function) or ()]
    if inspect.Parameter.VAR_POSITIONAL in kinds or _parameters(function) is None:
        return None
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in by_place for kind in kinds)


def keywords_of(function: Callable[..., Any]) -> frozenset[str]:
    """The names of the arguments that a function takes by name alone."""
    every = _parameters(function) or ()
    return frozenset(each.name for each in every if each.kind is each.KEYWORD_ONLY)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def root() -> Path:
    """The nearest folder with a `pyproject.toml`, from the working directory up, or that itself."""
    cwd = Path.cwd()
    return next((path for path in (cwd, *cwd.parents) if (path / _MARK_OF_ROOT).is_file()), cwd)


@contextmanager
def root_on_path() -> Iterator[None]:
    """The root and the working directory before all other places that modules are found in."""
    added = list(dict.fromkeys((str(Path.cwd()), str(root()))))
    sys.path[:0] = added
    try:
        yield
    finally:
        for path in added:
            if path in sys.path:  # the code may have changed it
                sys.path.remove(path)


@cache
def is_theirs(file: str) -> bool:
    """Whether a file is the user's own, and not of a library, of Python or of this package."""
    path = Path(file).resolve()
    return not (str(path).startswith(_NOT_THEIRS) or _OF_LIBRARIES.intersection(path.parts))


def beginning(thing: Callable[..., Any]) -> str:
    """Where a function of the user's own begins, in brackets; empty for any other."""
    code = getattr(inspect.unwrap(thing), "__code__", None)
    if code is None or code.co_filename.startswith("<") or not is_theirs(code.co_filename):
        return ""
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def _place(error: BaseException) -> str:
    """The last line of the user's own that an error has come through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and is_theirs(frame.filename)
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
