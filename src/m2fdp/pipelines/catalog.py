"""The catalog of this project; apart from the datasets, which take longer to import."""

from __future__ import annotations

from typing import Any

from kedro.io import DataCatalog, DatasetError

from m2fdp.core.errors import InputError, chain
from m2fdp.core.interruption import deferred


class UninterruptedCatalog(DataCatalog):
    """A catalog that finishes the file it is saving before Ctrl-C or SIGTERM takes effect.

    What is wrong with a file that it loads stays the one line that the dataset has found.
    """

    def load(self, ds_name: str, version: str | None = None) -> Any:
        try:
            return super().load(ds_name, version)
        except DatasetError as error:
            for cause in chain(error):
                if isinstance(cause, InputError):
                    raise cause from None
            raise

    def save(self, ds_name: str, data: Any) -> None:
        with deferred():
            super().save(ds_name, data)
