"""The words of figures: each drawn once a process, and measured by what was drawn."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import get_hinting_flag
from matplotlib.font_manager import FontProperties, findfont, get_font

# What a formula has beside its characters: matplotlib writes powers of ten in such.
_MARKUP = re.compile(r"\\mathdefault|[${}^]")

_PIXELS = 150.0  # an inch; more would not change a width by a hundredth of an inch


class Words(NamedTuple):
    """A text in one font, as it is drawn without colour.

    Attributes:
        ink: uint8 (height, width), how much of each pixel is covered.
        left, bottom: of the image, in pixels from where the text begins, on its baseline.
        width, height, descent: in pixels, as layouts count them.
    """

    ink: np.ndarray
    left: int
    bottom: int
    width: float
    height: float
    descent: float


@lru_cache(maxsize=2048)
def drawn_words(text: str, font_file: str, size: float, dpi: float) -> Words:
    """A text of one line in a font of some points, with that many pixels an inch."""
    font = get_font(font_file)
    font.clear()
    font.set_size(size, dpi)
    font.set_text(text, 0.0, flags=get_hinting_flag())
    width, height = (extent / 64 for extent in font.get_width_height())
    descent = font.get_descent() / 64
    left = font.get_bitmap_offset()[0] / 64
    font.draw_glyphs_to_bitmap(antialiased=True)
    ink = np.array(font.get_image())
    ink.setflags(write=False)
    return Words(ink, round(left), -round(descent), width, height, descent)


def width_in_inches(text: str, size: float) -> float:
    """How wide a text of one line is in the usual font; about so where it is a formula.

    Args:
        size: of the font, in points.
    """
    plain = _MARKUP.sub("", text.replace(r"\times", " × ")) if text.startswith("$") else text
    if not plain:
        return 0.0
    return drawn_words(plain, findfont(FontProperties()), size, _PIXELS).width / _PIXELS
