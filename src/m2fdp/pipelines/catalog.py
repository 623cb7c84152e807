"""The catalog of this project; apart from the datasets, which take longer to import."""

from __future__ import annotations

from typing import Any

from kedro.io import DataCatalog

from m2fdp.interruption import deferred


class UninterruptedCatalog(DataCatalog):
    """A catalog that finishes the file it is saving before Ctrl-C or SIGTERM takes effect."""

    def save(self, ds_name: str, data: Any) -> None:
        with deferred():
            super().save(ds_name, data)
