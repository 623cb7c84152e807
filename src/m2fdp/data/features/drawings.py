"""Drawings in bright on black: public images of things and characters that show none in particular.

Next to `shapes` they have what many kinds of pictures share: outlines that are straight here and
round there, often symmetric, things of two parts, and strokes that meet as those of writing do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import category

import numpy as np
import torch

from m2fdp.data.features.deformations import deformed
from m2fdp.data.features.shapes import blob, edge, lines, shaded, smooth_fields

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

# Of things, slabs, characters, lines and textures, in this order.
_SHARES = (2, 2, 2, 1, 1)
_SYMMETRIC = 0.6  # of outlines
# Of a font, as a share of an image's side.
_SMALLEST, _LARGEST = 0.65, 0.95
# As a share of an image: the least ink of a character.
_LEAST_INK = 0.025
# Of the files of fonts that matplotlib bundles; the others have few characters, or their own codes.
_FONTS = "DejaVuS*.ttf"
_FEW = "Display"


def drawings(textures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many images as textures, float32 (n, C, H, W) in [0, 1] both: things of two parts, slabs
    and characters, a quarter each, lines and textures, an eighth each."""
    size = textures.shape[2:]
    ends = len(textures) * np.cumsum(_SHARES) // sum(_SHARES)
    of_things, of_slabs, of_characters, of_lines, plain = np.split(textures, ends[:-1])
    parts = [
        _things(of_things, rng),
        _slab(len(of_slabs), size, rng) * shaded(of_slabs, rng),
        np.broadcast_to(_characters(len(of_characters), size, rng), of_characters.shape),
        np.broadcast_to(lines(len(of_lines), size, rng)[:, None], of_lines.shape),
        plain,
    ]
    return np.concatenate(parts).astype(np.float32)


def font_source() -> dict[str, str]:
    """The fonts that characters are drawn by, with a digest of their bytes."""
    from matplotlib import __version__

    digest = blake2b(digest_size=16)
    for file in _font_files():
        digest.update(file.read_bytes())
    return {f"matplotlib {__version__} DejaVu fonts": digest.hexdigest()}


def _things(textures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Round things with a slab on them: over their edge in one half, inside it in the other."""
    n, _, *size = textures.shape
    thing, slab = _blob(n, size, rng), _slab(n, size, rng)
    below, above = shaded(textures, rng), shaded(rng.permutation(textures), rng)
    seen = np.where(rng.random((n, 1, 1, 1)) < 0.5, slab, slab * thing)
    return below * thing * (1 - seen) + above * seen


def _blob(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Masks (n, 1, H, W) of blobs of different sizes."""
    field = _often_symmetric(blob(n, size, rng), rng)
    return edge(field + rng.uniform(-0.6, 0.8, (n, 1, 1)))[:, None]


def _slab(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Masks (n, 1, H, W) of figures between an ellipse and a rectangle, of uneven outline."""
    y, x = (np.linspace(-1, 1, side) for side in size)
    y, x = y[:, None] - rng.normal(0, 0.1, (n, 1, 1)), x - rng.normal(0, 0.1, (n, 1, 1))
    angle, power = rng.normal(0, 0.2, (n, 1, 1)), rng.uniform(2, 8, (n, 1, 1))
    wide, high = rng.uniform(0.3, 0.95, (2, n, 1, 1))
    along = np.abs((x * np.cos(angle) + y * np.sin(angle)) / wide)
    across = np.abs((y * np.cos(angle) - x * np.sin(angle)) / high)
    uneven = rng.uniform(0.1, 0.8, (n, 1, 1)) * smooth_fields(n, size, (2.0, 6.0), rng)
    inside = 1.5 * (1 - along**power - across**power)
    return edge(_often_symmetric(uneven, rng) + inside)[:, None]


def _often_symmetric(fields: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Fields (n, H, W), most of them equal to their mirror image."""
    symmetric = rng.random((len(fields), 1, 1)) < _SYMMETRIC
    return np.where(symmetric, (fields + fields[:, :, ::-1]) / 2, fields)


# --- characters --------------------------------------------------------------------------


def _characters(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Letters and signs of many scripts, no digits, deformed: (n, 1, H, W)."""
    fonts = _fonts()
    drawn = np.zeros((n, 1, *size), dtype=np.float32)
    number = 0
    while number < n:
        font, characters = fonts[rng.integers(len(fonts))]
        points = rng.uniform(_SMALLEST, _LARGEST) * min(size)
        ink = _ink(font, characters[rng.integers(len(characters))], points)
        margins = [have - want for have, want in zip(size, ink.shape, strict=True)]
        if min(margins) < 0 or ink.sum() < _LEAST_INK * np.prod(size):
            continue
        top, left = (margin // 2 for margin in margins)
        drawn[number, 0, top : top + ink.shape[0], left : left + ink.shape[1]] = ink
        number += 1
    # Twice, as hands differ by more than what one still takes for the same character.
    return deformed(deformed(torch.as_tensor(drawn), rng), rng).numpy()


def _ink(font: FT2Font, character: str, points: float) -> np.ndarray:
    """A character, float32 (height, width) in [0, 1], no larger than it is."""
    font.clear()
    font.set_size(points, 72)
    font.set_text(character)
    font.draw_glyphs_to_bitmap(antialiased=True)
    return np.asarray(font.get_image(), dtype=np.float32) / 255


@cache
def _fonts() -> list[tuple[FT2Font, list[str]]]:
    """Each font with its letters and signs."""
    from matplotlib.ft2font import FT2Font

    fonts = [FT2Font(str(file)) for file in _font_files()]
    return [(font, list(filter(_is_drawn, map(chr, font.get_charmap())))) for font in fonts]


def _is_drawn(character: str) -> bool:
    """Letters and signs are, digits and other numbers are not."""
    return category(character)[0] in "LS"


def _font_files() -> list[Path]:
    from matplotlib import get_data_path

    files = (Path(get_data_path()) / "fonts" / "ttf").glob(_FONTS)
    return sorted(file for file in files if _FEW not in file.name)
