"""The picture of the rooms, made of the import contract: `python docs/rooms.py` from the root."""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "rooms.svg"

_WIDTH, _ROW, _GAP, _LEFT = 1180, 34, 6, 60
_INK, _PALE = "#1f2933", "#52606d"
_FRAME, _LIBRARY = "#dbe7f3", "#e6f0e3"
_FONT = "font-family='Helvetica, Arial, sans-serif'"


def layers() -> list[list[str]]:
    """The contract's layers from the top; each is a list of rooms and modules."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (one for one in linter["contracts"] if one["name"].startswith("Three floors"))
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def sentence(name: str) -> str:
    """The first sentence of a room's or module's docstring."""
    folder = ROOT / "src" / "m2fdp" / name
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
    return " ".join(text.split()).partition(". ")[0].rstrip(".").replace("`", "")


def picture() -> str:
    """The SVG: a row a layer; whatever is above may import what is below, never the other way."""
    rows, y, parts = layers(), 44, []
    library_from = next(i for i, names in enumerate(rows) if "expectations" in names) + 1
    for number, names in enumerate(rows):
        if number == library_from:
            y += 22
            parts.append(_text(_LEFT, y - 8, "core and rooms: neither Kedro nor MLflow", _PALE, 12))
        colour = _LIBRARY if number >= library_from else _FRAME
        height = _ROW if len(names) == 1 else 8 + 22 * len(names)
        parts.append(
            f"<rect x='{_LEFT}' y='{y}' width='{_WIDTH - _LEFT - 20}' height='{height}' rx='4' "
            f"fill='{colour}' stroke='#9aa5b1'/>"
        )
        for place, name in enumerate(names):
            line = y + 22 + 22 * place if len(names) > 1 else y + 22
            parts.append(_text(_LEFT + 14, line, name, _INK, 14, "bold"))
            parts.append(_text(_LEFT + 190, line, sentence(name), _INK, 13))
        y += height + _GAP
    parts.append(
        f"<path d='M 30 44 V {y - 12} m -6 -8 l 6 8 l 6 -8' fill='none' stroke='{_PALE}' "
        "stroke-width='2'/>"
    )
    parts.append(
        f"<text x='20' y='{y // 2}' {_FONT} font-size='13' fill='{_PALE}' "
        f"transform='rotate(-90 20 {y // 2})' text-anchor='middle'>imports</text>"
    )
    title = _text(_LEFT, 28, "m2fdp: rooms and what they may import", _INK, 16, "bold")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {y + 8}' "
        f"width='{_WIDTH}' height='{y + 8}'>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n{title}\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: int, y: int, text: str, colour: str, size: int, weight: str = "normal") -> str:
    return (
        f"<text x='{x}' y='{y}' {_FONT} font-size='{size}' font-weight='{weight}' "
        f"fill='{colour}'>{escape(text)}</text>"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())
