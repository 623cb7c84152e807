"""Tables as people have them, a part at a time: files of pandas, Excel and databases, folders of
pictures, entries of Kedro's catalog, data sets of Hugging Face."""

import csv
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from m2fdp.core.errors import InputError, one_line
from m2fdp.core.own_code import GIVEN
from m2fdp.tables.pictures import TEST, TRAIN, listed

SUFFIXES = (".csv", ".tsv", ".parquet", ".feather")
# What a root begins with that is no path.
CATALOG, HUB = "catalog:", "hf:"
LISTING = "metadata.csv"  # of a folder of pictures, beside them
_AT_A_TIME = 250_000  # rows
_SEPARATORS = ",;\t|"
_SPLITS = (("train", TRAIN), ("test", TEST))
_EXCEL = (".xls", ".xlsx", ".xlsm", ".ods")
# By what a file begins with. Windows' own encoding reads any other bytes.
_ENCODINGS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def files_of(root: str) -> dict[str | None, str]:
    """What `read_parts` reads, by what it is for: train, test, or None where rows say it, or it is
    drawn.

    Args:
        root: a table, a folder of them or of pictures, `catalog:ENTRY` or `hf:NAME`.
    """
    path = Path(root).expanduser()
    if root.startswith(HUB):
        of_hub = _hub(root)
        named = {of: [name for name in names if name in of_hub] for of, names in _SPLITS}
        if all(named.values()):
            return {split: f"{root}#{names[0]}" for split, names in named.items()}
        return {None: f"{root}#{next(iter(of_hub))}"}
    if root.startswith(CATALOG) or not path.is_dir():
        return {None: root}
    found: dict[str | None, str] = {}
    for split, names in _SPLITS:
        for name in names:
            for file in (*path.glob(f"{name}.*"), path / name / LISTING):
                if file.is_file() and file.suffix.lower() in SUFFIXES:
                    found.setdefault(split, str(file))
    if len(found) == 2:
        return found
    return {None: str(path / LISTING) if (path / LISTING).is_file() else root}


def folder_of(file: str) -> Path:
    """Where files lie that the cells of a table name."""
    path = Path(file).expanduser()
    return path if path.is_dir() else path.parent


def read_parts(key: str, file: str) -> Iterator[pd.DataFrame]:
    """The rows of a table, some at a time, numbered from 0. Cells of text files stay texts: the
    schema says what they mean.

    Args:
        key: the configuration's key that names the file, for errors.

    Raises:
        InputError: no such file, no table, or no row.
    """
    path, refuse = Path(file).expanduser(), partial(InputError, key, file)
    if not (path.is_file() or path.is_dir() or file.startswith((CATALOG, HUB))):
        if path.with_name(f"{path.name}.dvc").is_file():
            raise refuse("is not fetched yet; `dvc pull` fetches it")
        raise refuse(f"no such file; valid: a table ({', '.join(SUFFIXES)})")
    if path.suffix.lower() in _EXCEL:
        raise refuse("is a workbook; save its sheet as CSV (UTF-8) and give that file")
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise refuse(f"is of another kind; valid: {', '.join(SUFFIXES)}")
    start = 0
    try:
        for part in _parts(file, path):
            columns = [str(name).strip() for name in part.columns]
            if twice := [name for name in columns if columns.count(name) > 1]:
                raise refuse(f"has two columns {twice[0]}; valid: each name once")
            yield part.set_axis(columns, axis=1).set_axis(range(start, start + len(part)), axis=0)
            start += len(part)
    except (ValueError, OSError, UnicodeError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise refuse(f"can't be read as a table ({one_line(error)})") from error
    if start == 0:
        raise refuse("has no row; valid: a line with the columns' names, and rows below it")


def line_of(file: str, row: int) -> str:
    """Where a row of a table, counted from 0, stands in its file, in words."""
    path = Path(file).expanduser()
    if path.suffix.lower() not in (".csv", ".tsv") or not path.is_file():
        return f"row {row + 1}"
    with path.open(newline="", encoding=_encoding(path), errors="replace") as text:
        rows = csv.reader(text, delimiter=_separator(path))
        filled = (rows.line_num for cells in rows if cells)
        return f"line {next((line for n, line in enumerate(filled) if n == row + 1), row + 2)}"


def _parts(file: str, path: Path) -> Iterator[pd.DataFrame]:
    if file.startswith(CATALOG):
        if "catalog" not in GIVEN:
            valid = "valid: a file, or an entry of the catalog within `kedro run`"
            raise InputError("dataset.root", file, f"there is no catalog here; {valid}")
        yield GIVEN["catalog"](file.removeprefix(CATALOG))
        return
    if file.startswith(HUB):
        name, _, split = file.partition("#")
        rows = _hub(name)[split]
        names = {each: getattr(kind, "names", None) for each, kind in rows.features.items()}
        for batch in rows.with_format("arrow").iter(_AT_A_TIME):
            frame = batch.to_pandas()
            for column, classes in names.items():
                if classes:  # whole numbers stand for names
                    frame[column] = frame[column].map(dict(enumerate(classes)))
            yield frame
        return
    if path.is_dir():
        yield listed(path)
        return
    match path.suffix.lower():
        case ".parquet":
            from pyarrow import parquet  # takes longer than to read most tables

            with parquet.ParquetFile(path) as table:
                for batch in table.iter_batches(_AT_A_TIME):
                    yield batch.to_pandas()
        case ".feather":
            yield pd.read_feather(path)
        case _:
            options = dict[str, Any](sep=_separator(path), encoding=_encoding(path), dtype=str)
            options |= {"skipinitialspace": True, "header": None, "index_col": False}
            # Read as a row: pandas would rename the second of two equal names.
            names = pd.read_csv(path, **options, nrows=1, na_filter=False).iloc[0].tolist()
            with suppress(pd.errors.EmptyDataError):  # there is no row
                for part in pd.read_csv(path, **options, skiprows=1, chunksize=_AT_A_TIME):
                    yield part.set_axis(names, axis=1)


@cache
def _hub(root: str) -> Any:
    """The splits by name of a data set of Hugging Face's, from its cache or the hub."""
    refuse = partial(InputError, "dataset.root", root)
    try:
        import datasets  # of the extra
    except ImportError:
        raise refuse("needs Hugging Face's datasets: pip install -r requirements-hf.lock") from None
    try:
        return datasets.load_dataset(root.removeprefix(HUB))
    except Exception as error:  # the library's own, its loaders' and the network's
        raise refuse(f"can't be loaded by Hugging Face's datasets ({one_line(error)})") from error


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(1 << 20)
    for mark, name in _ENCODINGS.items():
        if content.startswith(mark):
            return name
    try:
        # A character may be cut in two at the end.
        content[: max(len(content) - 4, 0) or None].decode("utf-8")
    except UnicodeDecodeError as error:
        return "utf-8" if error.start >= len(content) - 8 and len(content) > 16 else "cp1252"
    return "utf-8"


def _separator(path: Path) -> str:
    """The character that parts the first line into most cells."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    with path.open(newline="", encoding=_encoding(path), errors="replace") as text:
        head = next((line for line in text if line.strip()), "")
    counts = {mark: len(next(csv.reader([head], delimiter=mark), [])) for mark in _SEPARATORS}
    return max(counts, key=lambda mark: counts[mark])
