"""Files of a user's own modules: a run that goes on knows by them whether they have changed."""

import ast
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from m2fdp.given.own_code import BEFORE, is_theirs, root_on_path


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


def sources(names: Iterable[str]) -> dict[str, Source]:
    """The modules that own code comes from: those that are named, and all that they import.
    Libraries, Python and this package are left out.

    Args:
        names: modules, or names of the form `package.module:name`.
    """
    waiting = [name.partition(":")[0] for name in names]
    found: dict[str, Source | None] = {}
    with root_on_path():
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = source = _source(name)
                waiting += [*(source.imports if source else ()), name.rpartition(".")[0]]
    return {name: source for name, source in found.items() if source}


def imported_since() -> list[str]:
    """The modules that this process has imported since it first loaded own code, whoever asked for
    them, as far as they are the user's and have a file."""
    with root_on_path():
        late = {name: _source(name) for name in sorted(sys.modules.keys() - BEFORE)}
    return [name for name, source in late.items() if source and source.digest]


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
    return not places or any(map(is_theirs, places))


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
