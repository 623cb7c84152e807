"""A user's own code, named as `package.module:name` and found in the project's root.

Whatever it does wrong, in being imported or called, ends in one line with its file and line.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from m2fdp.core.errors import InputError, one_line
from m2fdp.core.rooms import Catalogue

FORM = "package.module:function"
# By the key that names own code, the function of a room that makes of it what the core takes.
OWN: Catalogue[Callable[..., Any]] = Catalogue("own", {})
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


@dataclass(frozen=True)
class Source:
    """A module of the user's own, as its file was when this process read it first.

    Attributes:
        spec: how Python finds the module; a module that is loaded anew has another.
        file: its file, or what it is called.
        digest: SHA-256 of the file; empty where there is none with Python in it.
        imports: names that it may import, anywhere in it.
    """

    spec: ModuleSpec
    file: str
    digest: str = ""
    imports: tuple[str, ...] = ()


_SOURCES: dict[str, Source] = {}  # by module
_BEFORE: set[str] = set()  # the modules that were there before any of the user's own


def is_own(name: str) -> bool:
    """Whether a name is meant as that of the user's own code."""
    return ":" in name


def is_ours(thing: object) -> bool:
    """Whether the class of a thing is this project's, whatever it calls itself."""
    kind = type(thing)
    module = sys.modules.get(kind.__module__)
    is_module_ours = kind.__module__.split(".")[0] == __name__.split(".")[0]
    return is_module_ours and getattr(module, kind.__qualname__, None) is kind


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
        _BEFORE.update(() if _BEFORE else sys.modules)
        module = importlib.import_module(module_name)
        sources([name])  # now, before anybody changes the file
        thing = getattr(module, attribute)
    if not (callable(thing) if kind is None else isinstance(thing, kind)):
        expected = "function" if kind is None else kind.__name__
        raise InputError(key, name, f"is no {expected} but {type(thing).__name__}")
    return thing


def sources(names: Iterable[str]) -> dict[str, Source]:
    """The modules that own code comes from: those that are named, and all that they import.
    Libraries, Python and this package are left out.

    Args:
        names: modules, or names of the form `package.module:name`.
    """
    waiting = [name.partition(":")[0] for name in names]
    found: dict[str, Source | None] = {}
    with _root_on_path():
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = source = _source(name)
                waiting += [*(source.imports if source else ()), name.rpartition(".")[0]]
    return {name: source for name, source in found.items() if source}


def imported_since() -> list[str]:
    """The modules that this process has imported since it first loaded own code, whoever asked for
    them, as far as they are the user's and have a file."""
    with _root_on_path():
        late = {name: _source(name) for name in sorted(sys.modules.keys() - _BEFORE)}
    return [name for name, source in late.items() if source and source.digest]


@contextmanager
def guarded(key: str, name: str, what: str) -> Iterator[None]:
    """A block that runs own code: it finds the root's modules, and fails in one line.

    Raises:
        InputError: for whatever the code raises, `sys.exit` too: what has gone wrong, and the last
            place of the user's own.
    """
    with _root_on_path():
        try:
            yield
        except (Exception, SystemExit) as error:
            raise InputError(key, name, f"{what}: {one_line(error)}{_place(error)}") from error


def n_positional(function: Callable[..., Any]) -> int | None:
    """How many positional arguments a function takes; None where it takes any number or does not
    tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in by_place for parameter in parameters)


def keywords_of(function: Callable[..., Any]) -> frozenset[str]:
    """The names of the arguments that a function takes by name alone."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    return frozenset(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)


def root() -> Path:
    """The nearest folder with a `pyproject.toml`, from the working directory up, or that itself."""
    cwd = Path.cwd()
    return next((path for path in (cwd, *cwd.parents) if (path / _MARK_OF_ROOT).is_file()), cwd)


@contextmanager
def _root_on_path() -> Iterator[None]:
    """The root and the working directory before all other places that modules are found in."""
    added = list(dict.fromkeys((str(Path.cwd()), str(root()))))
    sys.path[:0] = added
    try:
        yield
    finally:
        for path in added:
            if path in sys.path:  # the code may have changed it
                sys.path.remove(path)


def _source(name: str) -> Source | None:
    """The source of a module; None where it is not the user's own, is none, or is a folder."""
    top, _, below = name.partition(".")
    if below and not _is_own(_spec(top)):
        return None
    spec = _spec(name)
    if spec is None or not _is_own(spec) or (spec.origin is None and _places(spec)):
        return None
    known = _SOURCES.get(name)
    if known is None or known.spec is not spec:
        known = _SOURCES[name] = _read(spec)
    return known


def _read(spec: ModuleSpec) -> Source:
    path = Path(spec.origin or spec.name)
    try:
        content = path.read_bytes() if path.suffix == ".py" else None
    except OSError:  # in an archive
        content = None
    if content is None:
        return Source(spec, path.name)
    try:
        imports = _imports(content, spec.parent or "")
    except (SyntaxError, ValueError):  # as it says itself, once it is imported
        imports = ()
    return Source(spec, path.name, sha256(content).hexdigest(), imports)


def _spec(name: str) -> ModuleSpec | None:
    """How Python finds a module; nothing is imported for it."""
    if name in sys.modules:
        if sys.modules[name] is None:  # nobody may import it
            return None
        # Not by its attributes: a lazy module would load itself.
        known = getattr(sys.modules[name], "__dict__", {})
        return known.get("__spec__") or ModuleSpec(name, None, origin=known.get("__file__"))
    parent = name.rpartition(".")[0]
    if not parent:
        return importlib.util.find_spec(name) if name else None
    above = _spec(parent)
    return PathFinder.find_spec(name, _places(above)) if above and _places(above) else None


def _places(spec: ModuleSpec) -> list[str]:
    """The folders of a package."""
    return list(spec.submodule_search_locations or ())


def _is_own(spec: ModuleSpec | None) -> bool:
    """Whether a module is the user's, as far as it has a place."""
    if spec is None or spec.origin in ("built-in", "frozen"):
        return False
    places = [spec.origin] if spec.origin else _places(spec)
    return not places or any(map(_is_theirs, places))


def _imports(content: bytes, package: str) -> tuple[str, ...]:
    """The names of modules that a source may import; some are no modules but what one holds."""
    names: list[str] = []
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            try:
                base = importlib.util.resolve_name(relative, package)
            except ImportError:  # beyond the topmost package: it can't be imported
                continue
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(names))


@cache
def _is_theirs(file: str) -> bool:
    """Whether a file is the user's own, and not of a library, of Python or of this package."""
    path = Path(file).resolve()
    return not (str(path).startswith(_NOT_THEIRS) or _OF_LIBRARIES.intersection(path.parts))


def _place(error: BaseException) -> str:
    """The last line of the user's own that an error has come through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and _is_theirs(frame.filename)
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
