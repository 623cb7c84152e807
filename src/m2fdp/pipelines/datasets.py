"""How files reach the disk: whole, and with the same bytes for the same content."""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import torch
from kedro.io import AbstractDataset, DatasetError
from kedro_datasets.json import JSONDataset
from kedro_datasets.matplotlib import MatplotlibDataset
from kedro_datasets.pandas import CSVDataset

from m2fdp.files import replacing


class _Replacing:
    """Saves to another file of the same folder, which replaces an older one in a single step."""

    _filepath: PurePosixPath

    def save(self, data: Any) -> None:
        path = self._filepath
        with replacing(Path(path)) as unfinished:
            self._filepath = PurePosixPath(unfinished)
            try:
                super().save(data)
            finally:
                self._filepath = path


class TableDataset(_Replacing, CSVDataset):
    """A table as CSV."""


class FigureDataset(_Replacing, MatplotlibDataset):
    """A figure as PNG."""


class RecordDataset(_Replacing, JSONDataset):
    """Named values as JSON."""


class StateDictDataset(AbstractDataset[dict[str, torch.Tensor], dict[str, torch.Tensor]]):
    """A model's `state_dict` in one file, which replaces an older one in a single step."""

    def __init__(self, filepath: str) -> None:
        self._filepath = PurePosixPath(filepath)

    def load(self) -> dict[str, torch.Tensor]:
        return torch.load(self._filepath, map_location="cpu", weights_only=True)

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

    def save(self, data: Any) -> NoReturn:
        raise DatasetError("a folder is handed to the node that fills it, never saved")

    def _describe(self) -> dict[str, Any]:
        return {"path": str(self._path)}
