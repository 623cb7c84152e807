"""Figures on their way to files: drawn when they are saved, and equal ones once a process."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, Literal

import numpy as np
import pandas as pd
from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.text import Text

from m2fdp.reporting.words import Words, drawn_words

# More than the kinds of figures of a run: cells of a study share most of theirs with a few others.
KEPT = 32
# zlib's; its default takes half as long again for files that are a tenth smaller.
_COMPRESSION = 1


@dataclass(frozen=True)
class Drawing:
    """A figure that nobody has drawn yet.

    Cells of a study share networks, splits and ledgers, and to draw takes longer than to train:
    two drawings by one function of equal inputs are one picture.

    Attributes:
        draw: a module's function.
        inputs: its arguments, pickled.
    """

    draw: Callable[..., Figure]
    inputs: bytes

    @classmethod
    def of(cls, draw: Callable[..., Figure], *arguments: Any) -> Drawing:
        """What `draw(*arguments)` returns, which depends on nothing else; not where a table
        comes from (`attrs`)."""
        return cls(draw, pickle.dumps([_without_origin(each) for each in arguments]))

    def figure(self) -> Figure:
        """It, drawn anew."""
        return self.draw(*pickle.loads(self.inputs))

    def savefig(self, file: IO[bytes], **options: Any) -> None:
        """Write it as PNG or, with options, as `matplotlib.figure.Figure.savefig` does."""
        if options:
            self.figure().savefig(file, **options)
        else:
            file.write(picture(self))


@lru_cache(maxsize=KEPT)
def picture(drawing: Drawing) -> bytes:
    """The drawing as PNG."""
    return png(drawing.figure())


def png(figure: Figure) -> bytes:
    """A figure as PNG: what `savefig` writes, which would go through all of it once more before
    it draws."""
    buffer = io.BytesIO()
    FigureCanvasAgg.print_png(_Canvas(figure), buffer, pil_kwargs={"compress_level": _COMPRESSION})
    return buffer.getvalue()


def _without_origin(argument: Any) -> Any:
    if not isinstance(argument, pd.DataFrame):
        return argument
    table = argument.copy(deep=False)
    table.attrs = {}
    return table


class _Renderer(RendererAgg):
    """Draws a text once a process, and then its picture: two thirds of the time that the figures of
    a run take is for their words, and most of these are numbers on axes."""

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        ismath: bool | Literal["TeX"] = False,
        mtext: Text | None = None,
    ) -> None:
        if ismath or angle not in (0, 90):
            RendererAgg.draw_text(self, gc, x, y, s, prop, angle, ismath, mtext)
            return
        words = self._words(s, prop)
        # Matplotlib counts a text's place from the top, and an image's, with its rows, from below.
        along, up = round(x + 0.5), round(self.height - y)
        ink, left, bottom = words.ink, along + words.left, up + words.bottom - 1
        if angle == 90:
            along, across = round(self.height - y + 0.5), round(x)
            ink, left = np.rot90(ink), across + 1 - words.bottom - len(ink)
            bottom = along + words.left
        colour = np.empty((*ink.shape, 4), dtype=np.uint8)
        colour[:, :, :3] = np.round(255 * np.array(gc.get_rgb()[:3]))
        colour[:, :, 3] = np.round(ink * gc.get_alpha())
        self.draw_image(gc, left, bottom, colour[::-1])

    def get_text_width_height_descent(
        self, s: str, prop: FontProperties, ismath: Any
    ) -> tuple[float, float, float]:
        if ismath:
            return RendererAgg.get_text_width_height_descent(self, s, prop, ismath)
        words = self._words(s, prop)
        return words.width, words.height, words.descent

    def _words(self, text: str, prop: FontProperties) -> Words:
        return drawn_words(text, findfont(prop), prop.get_size_in_points(), self.dpi)


class _Canvas(FigureCanvasAgg):
    def get_renderer(self) -> _Renderer:
        size = self.get_width_height(physical=True)
        renderer = getattr(self, "renderer", None)
        if renderer is None or (renderer.width, renderer.height) != size:
            self.renderer = _Renderer(*size, self.figure.dpi)  # type: ignore[no-untyped-call]
        return self.renderer
