"""Pictures: a folder of them as a table, and what its cells name as arrays of pixels."""

import base64
import binascii
import io
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from PIL.Image import open as open_image
from rich.console import Console
from rich.progress import track

from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing

Shape = tuple[int, int, int]  # of a picture: (height, width, channels)
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FOLDER = re.compile(r"folder\d+")  # the columns of `listed` by levels
NAME = "file_name"  # the column, as Hugging Face calls it
TRAIN, TEST = ("train", "training"), ("test", "testing", "val", "validation", "dev", "eval")
_AT_A_TIME = 256
_MODES = {1: "L", 3: "RGB"}


def listed(folder: Path) -> pd.DataFrame:
    """The pictures of a folder as a table: `file_name`, `split` where folders of the first level
    say train and test, and `folder1`, `folder2`, … for the folders that each picture lies in.

    Raises:
        InputError: there is no picture, or a folder has none.
    """
    refuse = partial(InputError, "dataset.root", str(folder))
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not (rows := [path.relative_to(folder).parts for path in found]):
        valid = "train.csv and test.csv, metadata.csv, or a folder of pictures for each class"
        raise refuse(f"is a folder with no table and no picture; valid: {valid}")
    first = {row[0].lower() for row in rows}
    splits = bool(first & {*TRAIN}) and bool(first & {*TEST}) and first <= {*TRAIN, *TEST}
    depth = min(map(len, rows)) - 1
    filled = {row[:level] for row in rows for level in range(1, depth + 1)}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_dir() and len(parts) <= depth and parts not in filled:
            raise refuse(f"the folder {Path(*parts)} holds no picture; remove it, or fill it")
    levels = [list(column) for column in zip(*(row[:depth] for row in rows), strict=True)]
    names = ["split"] * splits + [f"folder{n}" for n in range(1, depth - splits + 1)]
    files = [str(Path(*row)) for row in rows]
    return pd.DataFrame({NAME: files} | dict(zip(names, levels, strict=True)))


def are_pictures(cells: pd.Series) -> bool:
    """Whether a column's cells name pictures, or hold them."""
    known = cells.dropna().head(50)
    if known.map(lambda cell: isinstance(cell, bytes | dict)).all():
        return len(known) > 0
    return bool(known.astype(str).str.lower().str.endswith(SUFFIXES).all())


def usual_shape(cells: pd.Series, folder: Path, most: int) -> Shape:
    """The height, width and channels of most of the first pictures, a side no longer than `most`.

    Raises:
        InputError: one of them can't be opened.
    """
    shapes = []
    for cell in cells.dropna().head(200):
        picture = _opened(cell, folder)
        if picture is None:
            raise InputError("FILE", str(cell), "is no picture that can be opened")
        colours = 1 if picture.mode in ("1", "L", "I;16") else 3
        shapes.append((min(picture.height, most), min(picture.width, most), colours))
    return max(sorted(set(shapes)), key=shapes.count)


def decoded(
    cells: pd.Series, shape: Shape, folder: Path, store: Path | None
) -> tuple[np.ndarray, np.ndarray]:
    """What pictures show, as uint8 (n, *shape), and which can't be opened, (n,). Others are brought
    to the shape, and to grey levels where it has one channel.

    Args:
        cells: files, base64 of a picture's bytes, or these bytes.
        folder: where files lie.
        store: the folder that keeps what is decoded, so that it is done once; None = nowhere.
    """
    at = None if store is None else store / f"pictures-{_digest(cells, shape, folder)}.npz"
    if at is not None and at.is_file():
        with np.load(at) as kept:
            return kept["pixels"], kept["closed"]
    pixels = np.zeros((len(cells), *shape), dtype=np.uint8)
    closed = np.zeros(len(cells), dtype=bool)

    def fill(row: int) -> None:
        picture = _opened(cells.iloc[row], folder)
        closed[row] = picture is None
        if picture is not None:
            pixels[row] = _brought_to(shape, picture)

    console, starts = Console(stderr=True), range(0, len(cells), _AT_A_TIME)
    quiet = not console.is_terminal or len(starts) <= 1
    batches = track(starts, "decoding pictures", console=console, transient=True, disable=quiet)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in batches:
            list(threads.map(fill, range(start, min(start + _AT_A_TIME, len(cells)))))
    if at is not None and not closed.any():
        at.parent.mkdir(parents=True, exist_ok=True)
        with replacing(at) as path, path.open("wb") as file:
            np.savez(file, pixels=pixels, closed=closed)
    return pixels, closed


def _opened(cell: Any, folder: Path) -> Any:
    """PIL's picture of a cell, its pixels read; None where it is none."""
    try:
        with open_image(_stream(cell, folder)) as picture:
            picture.load()
            return picture.copy()
    # A damaged file ends in any of these, by its format.
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return None


def _stream(cell: Any, folder: Path) -> Any:
    content = cell.get("bytes") or cell.get("path") if isinstance(cell, dict) else cell
    if isinstance(content, bytes):
        return io.BytesIO(content)
    text = str(content)
    if text.lower().endswith(SUFFIXES) or len(text) < 64:
        return folder / Path(text).expanduser()
    try:
        return io.BytesIO(base64.b64decode(text, validate=True))
    except binascii.Error:
        return folder / text


def _brought_to(shape: Shape, picture: Any) -> np.ndarray:
    """Pixels (H, W, C), uint8."""
    height, width, channels = shape
    if picture.mode.startswith("I;16"):  # PIL would cut its levels off at 255
        levels = (np.asarray(picture, dtype=np.uint32) >> 8).astype(np.uint8)
        picture = Image.fromarray(levels)
    picture = picture.convert(_MODES[channels])
    if (picture.height, picture.width) != (height, width):
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(picture, dtype=np.uint8).reshape(shape)


def _digest(cells: pd.Series, shape: Shape, folder: Path) -> str:
    """Of all that pixels follow from; of files their size and time stand for what is in them."""
    digest = blake2b(repr((shape, str(folder.absolute()))).encode(), digest_size=16)
    for cell in cells:
        stream = _stream(cell, folder)
        if isinstance(stream, Path):
            about = stream.stat() if stream.is_file() else None
            known = about and (about.st_size, about.st_mtime_ns)
            digest.update(repr((str(cell), known)).encode())
        else:
            digest.update(stream.getvalue())
    return digest.hexdigest()


def nobodys(shape: Shape) -> str:
    """A grey picture, as a cell that a scoring server takes: base64 of a PNG."""
    stream = io.BytesIO()
    Image.new("L", (shape[1], shape[0]), 128).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
