"""Figures on their way to files: drawn when they are saved, and equal ones once a process; as PNG,
and as PDF for whoever prints them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import matplotlib as mpl
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# More than the kinds of figures of a run: cells of a study share most of theirs with a few others.
KEPT = 32
# zlib's; its default takes half as long again for files that are a tenth smaller.
_COMPRESSION = 1
# Letters as publishers take them (TrueType), and no date: equal figures are equal files.
_TRUETYPE = 42
_UNDATED = {"CreationDate": None}


@dataclass(frozen=True)
class Drawing:
    """A figure that nobody has drawn yet.

    Cells of a study share networks, splits and ledgers, and to draw takes longer than to train:
    two drawings by one function of equal inputs are one picture.
    """

    draw: Callable[..., Figure]  # a module's function
    inputs: bytes  # its arguments, pickled

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
    """The drawing as PNG: what `savefig` writes, which would go through all of it once more before
    it draws."""
    buffer = io.BytesIO()
    canvas = FigureCanvasAgg(drawing.figure())
    canvas.print_png(buffer, pil_kwargs={"compress_level": _COMPRESSION})
    return buffer.getvalue()


def write_pdf(figure: Figure, path: Path) -> None:
    """The figure as PDF, which any size leaves sharp; the same bytes for the same figure."""
    with mpl.rc_context({"pdf.fonttype": _TRUETYPE}):
        figure.savefig(path, format="pdf", metadata=_UNDATED)


def _without_origin(argument: Any) -> Any:
    if not isinstance(argument, pd.DataFrame):
        return argument
    table = argument.copy(deep=False)
    table.attrs = {}
    return table
