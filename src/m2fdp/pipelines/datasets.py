"""Pipelines' nodes, and how the files that they make reach the disk: whole, and with the same bytes
for the same content. Those that can't be read are refused."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
import torch
from kedro.io import AbstractDataset, CatalogProtocol, DatasetError
from kedro.pipeline import Node
from kedro_datasets.json import JSONDataset
from kedro_datasets.matplotlib import MatplotlibDataset
from kedro_datasets.pandas import CSVDataset
from kedro_datasets.text import TextDataset

from m2fdp.core.data.manifest import DIGEST, FILE
from m2fdp.core.errors import InputError, one_line
from m2fdp.core.files import replacing, shown
from m2fdp.reporting.pictures import Drawing

# Kedro's own would write as the locale says.
_WRITTEN = {"mode": "w", "encoding": "utf-8"}


def node(
    function: Callable[..., Any],
    inputs: str | list[str],
    outputs: str | list[str] | None,
    name: str | None = None,
) -> Node:
    """A node of a pipeline, called as what it does is."""
    return Node(function, inputs, outputs, name=name or function.__name__)


def drawing(draw: Callable[..., Any], inputs: str | list[str], output: str, name: str) -> Node:
    """A node that leaves a figure to be drawn when it is saved."""
    # Kedro warns of a function without a name.
    return node(update_wrapper(partial(Drawing.of, draw), draw), inputs, output, name)


def rows_of(catalog: CatalogProtocol, name: str) -> pd.DataFrame:
    """The rows of an entry of the catalog: of pandas, or anything with `to_pandas()`.

    Raises:
        InputError: there is no such entry, or it can't be read as rows.
    """
    refuse = partial(InputError, "dataset.root", f"catalog:{name}")
    if name not in catalog:
        raise refuse("is no entry of the catalog; valid: one of catalog.yml")
    try:
        rows = catalog[name].load()
    except DatasetError as error:
        raise refuse(f"can't be loaded ({one_line(error.__cause__ or error)})") from error
    rows = rows.to_pandas() if hasattr(rows, "to_pandas") else rows
    if not isinstance(rows, pd.DataFrame):
        raise refuse(f"is a {type(rows).__name__}; valid: an entry that loads rows")
    return rows


@contextmanager
def _readable(path: PurePosixPath) -> Iterator[None]:
    """One line that names the file, whatever its content makes of a reader."""
    try:
        yield
    except Exception as error:  # a damaged file can raise anything
        cause = error.__cause__ or error
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())[:200]
        raise InputError("file", shown(path), f"can't be read ({reason})") from error


class Replacing:
    """Mixed into a file dataset of Kedro's: it saves to another file of the same folder, which
    replaces an older one in a single step.

    Kedro's file datasets keep the path in `_filepath`, and read it at each load and save.
    """

    _filepath: PurePosixPath

    def save(self, data: Any) -> None:
        path = self._filepath
        with replacing(Path(path)) as unfinished:
            self._filepath = PurePosixPath(unfinished)
            try:
                super().save(data)  # type: ignore[misc]  # of the data set that this is mixed into
            finally:
                self._filepath = path


class _Possible(Replacing):
    """Mixed into a file dataset: what is empty has no file."""

    def save(self, data: Any) -> None:
        if data.empty if isinstance(data, pd.DataFrame) else data == ():
            Path(self._filepath).unlink(missing_ok=True)  # an earlier run's
        else:
            super().save(data)


class TableDataset(Replacing, CSVDataset):
    """A table as CSV; one that is loaded knows its file."""

    DEFAULT_FS_ARGS = {"open_args_save": _WRITTEN}

    def load(self) -> pd.DataFrame:
        with _readable(self._filepath):
            table = super().load()
        table.attrs[FILE] = shown(self._filepath)
        table.attrs[DIGEST] = hashlib.sha256(Path(self._filepath).read_bytes()).hexdigest()
        return table


class ManifestDataset(TableDataset):
    """The split as CSV; the names of devices are as they stand there, `007` and `None` too."""

    DEFAULT_LOAD_ARGS = {"dtype": {"device": str}, "keep_default_na": False, "na_values": [""]}

    def load(self) -> pd.DataFrame:
        table = super().load()
        if "device" in table and table["device"].str.fullmatch("0|-?[1-9][0-9]{0,17}").all():
            table["device"] = table["device"].astype("int64")
        return table


class PossibleTableDataset(_Possible, TableDataset):
    """A table as CSV, of which there is no file where it has no rows."""


class PageDataset(Replacing, TextDataset):
    """A text, such as a page in Markdown."""

    DEFAULT_FS_ARGS = {"open_args_save": _WRITTEN, "open_args_load": _WRITTEN | {"mode": "r"}}


class FigureDataset(Replacing, MatplotlibDataset):
    """A figure as PNG."""


class PossibleFigureDataset(_Possible, FigureDataset):
    """A figure as PNG; no file of an empty tuple, where there is nothing to draw."""


class RecordDataset(Replacing, JSONDataset):
    """Named values as JSON."""

    DEFAULT_FS_ARGS = {"open_args_save": _WRITTEN}

    def load(self) -> dict[str, Any]:
        with _readable(self._filepath):
            values = super().load()
            if not isinstance(values, dict):
                raise TypeError(f"named values are expected, not {json.dumps(values)[:40]}")
        return values


class StateDictDataset(AbstractDataset[dict[str, torch.Tensor], dict[str, torch.Tensor]]):
    """A model's `state_dict` in one file, which replaces an older one in a single step."""

    def __init__(self, filepath: str) -> None:
        self._filepath = PurePosixPath(filepath)

    def load(self) -> dict[str, torch.Tensor]:
        with _readable(self._filepath):
            state = torch.load(self._filepath, map_location="cpu", weights_only=True)
            if not isinstance(state, dict) or not all(map(torch.is_tensor, state.values())):
                raise TypeError("no state dict: parameters by name are expected")
        return state

    def save(self, data: dict[str, torch.Tensor]) -> None:
        buffer = io.BytesIO()
        # A clone holds its own elements only, also where the tensor is a view of a larger one.
        torch.save({name: tensor.detach().cpu().clone() for name, tensor in data.items()}, buffer)
        with replacing(Path(self._filepath)) as unfinished:
            unfinished.write_bytes(buffer.getbuffer())

    def _exists(self) -> bool:
        return Path(self._filepath).is_file()

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath)}


class FolderDataset(AbstractDataset[Any, Path]):
    """A folder whose files a node reads and writes itself, while it runs."""

    def __init__(self, path: str, metadata: dict[str, Any] | None = None) -> None:
        self._path = PurePosixPath(path)
        self.metadata = metadata

    def load(self) -> Path:
        return Path(self._path)

    def save(self, data: Any) -> None:
        raise DatasetError("a folder is handed to the node that fills it, never saved")

    def _exists(self) -> bool:
        return True  # the node makes it

    def _describe(self) -> dict[str, Any]:
        return {"path": str(self._path)}
