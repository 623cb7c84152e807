"""Tables in files, as pandas, Excel and databases write them, a part at a time."""

import csv
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from m2fdp.core.errors import InputError, one_line

SUFFIXES = (".csv", ".tsv", ".parquet", ".feather")
_AT_A_TIME = 250_000  # rows
_SEPARATORS = ",;\t|"
_EXCEL = (".xls", ".xlsx", ".xlsm", ".ods")
# By what a file begins with. Windows' own encoding reads any other bytes.
_ENCODINGS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def read_parts(key: str, file: str) -> Iterator[pd.DataFrame]:
    """The rows of a table, some at a time, numbered from 0. Cells of text files stay texts: the
    schema says what they mean.

    Args:
        key: the configuration's key that names the file, for errors.

    Raises:
        InputError: no such file, no table, or no row.
    """
    path, refuse = Path(file).expanduser(), partial(InputError, key, file)
    if not path.is_file():
        if path.with_name(f"{path.name}.dvc").is_file():
            raise refuse("is not fetched yet; `dvc pull` fetches it")
        raise refuse(f"no such file; valid: a table ({', '.join(SUFFIXES)})")
    if path.suffix.lower() in _EXCEL:
        raise refuse("is a workbook; save its sheet as CSV (UTF-8) and give that file")
    if path.suffix.lower() not in SUFFIXES:
        raise refuse(f"is of another kind; valid: {', '.join(SUFFIXES)}")
    start = 0
    try:
        for part in _parts(path):
            columns = [str(name).strip() for name in part.columns]
            if twice := [name for name in columns if columns.count(name) > 1]:
                raise refuse(f"has two columns {twice[0]}; valid: each name once")
            numbered = part.set_axis(columns, axis=1)
            yield numbered.set_axis(range(start, start + len(part)), axis=0)
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
    if path.suffix.lower() not in (".csv", ".tsv"):
        return f"row {row + 1}"
    with path.open(newline="", encoding=_encoding(path), errors="replace") as text:
        rows = csv.reader(text, delimiter=_separator(path))
        filled = (rows.line_num for cells in rows if cells)
        return f"line {next((line for n, line in enumerate(filled) if n == row + 1), row + 2)}"


def _parts(path: Path) -> Iterator[pd.DataFrame]:
    match path.suffix.lower():
        case ".parquet":
            from pyarrow import parquet  # takes longer than to read most tables

            with parquet.ParquetFile(path) as table:
                for batch in table.iter_batches(_AT_A_TIME):
                    yield batch.to_pandas()
        case ".feather":
            yield pd.read_feather(path)
        case _:
            options: dict[str, Any] = {
                "sep": _separator(path),
                "encoding": _encoding(path),
                "dtype": str,
            }
            options |= {"skipinitialspace": True, "header": None, "index_col": False}
            # Read as a row: pandas would rename the second of two equal names.
            names = pd.read_csv(path, **options, nrows=1, na_filter=False).iloc[0].tolist()
            with suppress(pd.errors.EmptyDataError):  # there is no row
                for part in pd.read_csv(path, **options, skiprows=1, chunksize=_AT_A_TIME):
                    yield part.set_axis(names, axis=1)


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
