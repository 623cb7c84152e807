"""`make size`: lines of each room, and keys of the configuration, beside ceilings that only fall.

A limit a module makes more modules. A ceiling for the whole, and one a room, makes a feature bring
its own lines and no others. The ceilings stand in pyproject.toml, `[tool.m2fdp.size]`. A commit
that gets a room below its ceiling lowers the ceiling.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "m2fdp"
# Modules that stand beside the rooms.
BESIDE = "beside"
# The room that every other one rests on, whose own rooms have ceilings, too.
CORE = "core"


@dataclass(frozen=True)
class Size:
    """Lines of some modules.

    Attributes:
        lines: all of them, empty ones too; what ceilings are of.
        code: those with code.
        texts: those of docstrings and comments.
    """

    lines: int = 0
    code: int = 0
    texts: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.lines + other.lines, self.code + other.code, self.texts + other.texts)


def size_of(source: str) -> Size:
    """The size of one module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
                docstrings |= set(range(first, last + 1))
    comments, code = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
            code |= set(range(token.start[0], token.end[0] + 1))
    code -= docstrings
    return Size(len(source.splitlines()), len(code), len(docstrings | (comments - code)))


def by_room(package: Path = PACKAGE) -> dict[str, Size]:
    """The size of each room, by name; of the core also of each room in it, as `core/name`."""
    sizes: dict[str, Size] = {}
    for path in sorted(package.rglob("*.py")):
        parts, size = path.relative_to(package).parts, size_of(path.read_text(encoding="utf-8"))
        names = [parts[0] if len(parts) > 1 else BESIDE]
        if names[0] == CORE:
            names.append(f"{CORE}/{parts[1] if len(parts) > 2 else 'ground'}")
        for name in names:
            sizes[name] = sizes.get(name, Size()) + size
    return sizes


def whole(sizes: Mapping[str, Size]) -> Size:
    """All rooms together."""
    return sum((size for name, size in sizes.items() if "/" not in name), Size())


def n_keys() -> int:
    """How many keys a configuration has."""
    from m2fdp.core.config import Config, keys_of

    return sum(1 for _ in keys_of(Config(), Config()))


def ceilings() -> Mapping[str, int]:
    """The most lines of each room, of `src`, and the most `keys`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: Mapping[str, int] = settings["tool"]["m2fdp"]["size"]
    return found


def above(sizes: Mapping[str, Size], keys: int, most: Mapping[str, int]) -> list[str]:
    """A line for each ceiling that is passed, or that a room lacks."""
    counted = {room: size.lines for room, size in sizes.items()}
    counted |= {"src": whole(sizes).lines, "keys": keys}
    lines = []
    for name, count in counted.items():
        if name not in most:
            lines.append(f"{name} has {count:,} and no ceiling in pyproject.toml, tool.m2fdp.size")
        elif not count <= most[name]:
            lines.append(f"{name} has {count:,}, its ceiling is {most[name]:,}")
    return lines


def main() -> int:
    """Print the table; 1 where a ceiling is passed."""
    sizes, most, keys = by_room(), ceilings(), n_keys()
    print(f"{'room':22} {'lines':>7} {'code':>7} {'texts':>7} {'ceiling':>8}")
    for room, size in sorted(
        [*sizes.items(), ("src", whole(sizes))], key=lambda pair: pair[1].lines
    ):
        ceiling = f"{most[room]:8,}" if room in most else f"{'–':>8}"
        print(f"{room:22} {size.lines:7,} {size.code:7,} {size.texts:7,} {ceiling}")
    print(f"{'keys':22} {keys:7,} {'':7} {'':7} {most.get('keys', 0):8,}")
    passed = above(sizes, keys, most)
    print("\n".join(passed), file=sys.stderr, end="\n" * bool(passed))
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
