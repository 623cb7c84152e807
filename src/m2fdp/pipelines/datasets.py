"""How outputs reach the disk: whole, and with the same bytes for the same content."""

from __future__ import annotations

import io
import os
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from kedro.io import AbstractDataset, DataCatalog

from m2fdp.interruption import deferred


class UninterruptedCatalog(DataCatalog):
    """A catalog that finishes the file it is saving before Ctrl-C or SIGTERM takes effect."""

    def save(self, ds_name: str, data: Any) -> None:
        with deferred():
            super().save(ds_name, data)


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
        path = Path(self._filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not a temporary file of the system's, which only its owner may read.
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as file:
                file.write(buffer.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def _exists(self) -> bool:
        return Path(self._filepath).is_file()

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath)}
