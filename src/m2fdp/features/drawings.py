"""Drawings in bright on black: public images of things and characters that show none in particular.

They have what many kinds of pictures share. Outlines are straight here and round there, and often
symmetric; things have two parts; strokes meet as those of writing do.
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

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

# Lengths below are of an image of that side, and grow with it.
_USUAL_SIDE = 28


def blob(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Fields (n, H, W) that are positive inside a smooth outline around the middle."""
    return smooth_fields(n, size, (2.5, 7.0), rng) + 1.8 * _ellipse(n, size, rng)


def lines(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Masks (n, H, W) of level lines of smooth fields, 1.6 to 4 pixels wide, in an ellipse."""
    scale = min(size) / _USUAL_SIDE
    field = smooth_fields(n, size, (2.8, 6.5), rng) - rng.uniform(-0.6, 0.6, (n, 1, 1))
    distance = np.abs(field) / (_slope(field) + 0.03 / scale)
    line = np.clip(0.5 + rng.uniform(0.8, 2.0, (n, 1, 1)) * scale - distance, 0, 1)
    outline = _ellipse(n, size, rng) + 0.25 * smooth_fields(n, size, (2.0, 5.0), rng)
    return line * edge(outline)


def shaded(textures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A third of the textures as they are, a third paler, a third plain; some darker."""
    n = len(textures)
    kind = rng.integers(3, size=(n, 1, 1, 1))
    paler = 0.25 + 0.75 * textures * rng.random((n, 1, 1, 1))
    chosen = np.where(kind == 0, textures, np.where(kind == 1, paler, 1.0))
    return np.clip(chosen * rng.uniform(0.6, 1.2, (n, 1, 1, 1)), 0, 1)


def smooth_fields(
    n: int, size: Sequence[int], lengths: tuple[float, float], rng: np.random.Generator
) -> np.ndarray:
    """Gaussian random fields (n, H, W) of mean 0 and variance 1 each.

    Args:
        lengths: bounds, in pixels of the usual side, that the deviation of the Gaussian that
            smoothes white noise is drawn between, each scale equally often.
    """
    # A field goes round; a part of it does not.
    height, width = (side * 3 // 2 for side in size)
    low, high = (np.log(length * min(size) / _USUAL_SIDE) for length in lengths)
    deviations = np.exp(rng.uniform(low, high, (n, 1, 1)))
    squared = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.rfftfreq(width) ** 2
    spectrum = np.fft.rfft2(rng.standard_normal((n, height, width)))
    spectrum *= np.exp(-2 * np.pi**2 * deviations**2 * squared)
    field = np.fft.irfft2(spectrum, s=(height, width))[:, : size[0], : size[1]]
    centred = field - field.mean(axis=(1, 2), keepdims=True)
    return centred / centred.std(axis=(1, 2), keepdims=True)


def _ellipse(n: int, size: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """(n, H, W): 1 in the middle of a random ellipse near the centre, 0 on it, negative outside."""
    scale = min(size) / _USUAL_SIDE
    y, x = np.ogrid[: size[0], : size[1]]
    centres = rng.normal(0, 1.5 * scale, (2, n, 1, 1))
    angle = rng.uniform(0, np.pi, (n, 1, 1))
    along, across = rng.uniform(6 * scale, 13 * scale, (2, n, 1, 1))
    y, x = y - (size[0] - 1) / 2 - centres[0], x - (size[1] - 1) / 2 - centres[1]
    u, v = y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)
    return 1 - (u / along) ** 2 - (v / across) ** 2


def edge(field: np.ndarray) -> np.ndarray:
    """1 where the field is positive and 0 where it is negative, with an edge of one pixel."""
    return np.clip(0.5 + field / (_slope(field) + 1e-3), 0, 1)


def _slope(field: np.ndarray) -> np.ndarray:
    rows, columns = np.gradient(field, axis=(1, 2))
    return np.hypot(rows, columns)


# Each is drawn uniformly up to these, either way.
_ROTATION = np.pi / 18
_LOG_SCALE, _SHEAR = 0.12, 0.15
_LOG_CONTRAST = 0.2
# As shares of half a side: a shift, and the deviation of a smooth field of shifts.
_SHIFT, _BEND = 0.11, 0.05
# Of that field, in pixels of 28; see `smooth_fields`.
_BEND_LENGTHS = (2.5, 4.0)


def deformed(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Each image, float32 (n, C, H, W) in [0, 1], turned, scaled, sheared, shifted, bent and of
    another contrast, a little; what comes in from outside repeats the edge."""
    n, _, *size = images.shape

    def up_to(limit: float) -> np.ndarray:
        return rng.uniform(-limit, limit, n)

    angle, wide, high = up_to(_ROTATION), np.exp(up_to(_LOG_SCALE)), np.exp(up_to(_LOG_SCALE))
    rows = [
        [wide * np.cos(angle), -high * np.sin(angle) + up_to(_SHEAR), up_to(_SHIFT)],
        [wide * np.sin(angle), high * np.cos(angle), up_to(_SHIFT)],
    ]
    affine = torch.as_tensor(np.moveaxis(np.array(rows), 2, 0), dtype=torch.float32)
    grid = affine_grid(affine, list(images.shape), align_corners=False)
    bends = [_BEND * smooth_fields(n, size, _BEND_LENGTHS, rng) for _ in range(2)]
    grid += torch.as_tensor(np.stack(bends, axis=3), dtype=torch.float32)
    moved = grid_sample(images, grid, align_corners=False, padding_mode="border").clamp(0, 1)

    def factors(logarithms: np.ndarray) -> Tensor:
        return torch.as_tensor(np.exp(logarithms), dtype=torch.float32)[:, None, None, None]

    paler = factors(-np.abs(up_to(_LOG_CONTRAST)))
    return moved.pow(factors(up_to(_LOG_CONTRAST))) * paler


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
    (drawn,) = drawn_again([textures], rng)
    return drawn


def drawn_again(textures: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """The same drawings once for each of k arrays of textures, (n, C, H, W) each: float32
    (k, n, C, H, W).

    Outlines are filled with that array's textures and shaded otherwise, characters are of another
    font; lines and textures, those of the first array, stay what they are.
    """
    size = textures[0].shape[2:]
    ends = len(textures[0]) * np.cumsum(_SHARES) // sum(_SHARES)
    of_things, of_slabs, of_characters, of_lines, plain = zip(
        *(np.split(each, ends[:-1]) for each in textures), strict=True
    )
    parts = [
        _things(of_things, rng),
        _slab(len(of_slabs[0]), size, rng) * np.stack([shaded(each, rng) for each in of_slabs]),
        _characters(len(of_characters[0]), size, rng, times=len(textures)),
        lines(len(of_lines[0]), size, rng)[:, None],
        plain[0],
    ]
    # What is grey has the same value in all channels.
    shapes = [np.shape(each) for each in (of_things, of_slabs, of_characters, of_lines, plain)]
    whole = [np.broadcast_to(part, shape) for part, shape in zip(parts, shapes, strict=True)]
    return np.concatenate(whole, axis=1).astype(np.float32)


def font_source() -> dict[str, str]:
    """The fonts that characters are drawn by, with a digest of their bytes."""
    from matplotlib import __version__

    digest = blake2b(digest_size=16)
    for file in _font_files():
        digest.update(file.read_bytes())
    return {f"matplotlib {__version__} DejaVu fonts": digest.hexdigest()}


def _things(textures: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Round things with a slab on them, over their edge in one half, inside it in the other, once
    for each of the arrays of textures: (k, n, C, H, W)."""
    n, _, *size = textures[0].shape
    thing, slab = _blob(n, size, rng), _slab(n, size, rng)
    fillings = [(shaded(each, rng), shaded(rng.permutation(each), rng)) for each in textures]
    seen = np.where(rng.random((n, 1, 1, 1)) < 0.5, slab, slab * thing)
    return np.stack([below * thing * (1 - seen) + above * seen for below, above in fillings])


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


def _characters(
    n: int, size: Sequence[int], rng: np.random.Generator, times: int = 1
) -> np.ndarray:
    """Letters and signs of many scripts, no digits, each as often as asked, in a font drawn anew,
    deformed: (times, n, 1, H, W)."""
    fonts = _fonts()
    drawn = np.zeros((times, n, 1, *size), dtype=np.float32)
    number = 0
    while number < n:
        font, characters = fonts[rng.integers(len(fonts))]
        points = rng.uniform(_SMALLEST, _LARGEST) * min(size)
        character = characters[rng.integers(len(characters))]
        inks = [_ink(font, character, points)]
        for _ in range(1, times):
            kin = _fonts_of(character)
            points = rng.uniform(_SMALLEST, _LARGEST) * min(size)
            inks.append(_ink(kin[rng.integers(len(kin))], character, points))
        if not all(_fits(ink, size) for ink in inks):
            continue
        for image, ink in zip(drawn[:, number, 0], inks, strict=True):
            top, left = ((have - want) // 2 for have, want in zip(size, ink.shape, strict=True))
            image[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
        number += 1
    # Twice, as hands differ by more than what one still takes for the same character.
    moved = deformed(deformed(torch.as_tensor(drawn).flatten(0, 1), rng), rng)
    return moved.numpy().reshape(drawn.shape)


def _fits(ink: np.ndarray, size: Sequence[int]) -> bool:
    """Whether a character lies in an image of some size and has enough ink to be seen."""
    inside = all(want <= have for have, want in zip(size, ink.shape, strict=True))
    return inside and ink.sum() >= _LEAST_INK * np.prod(size)


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


@cache
def _fonts_of(character: str) -> list[FT2Font]:
    """The fonts that have a character."""
    return [font for font, characters in _fonts() if character in characters]


def _is_drawn(character: str) -> bool:
    """Letters and signs are, digits and other numbers are not."""
    return category(character)[0] in "LS"


def _font_files() -> list[Path]:
    from matplotlib import get_data_path

    files = (Path(get_data_path()) / "fonts" / "ttf").glob(_FONTS)
    return sorted(file for file in files if _FEW not in file.name)
