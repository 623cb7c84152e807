"""What the project uses of Kedro that Kedro promises nobody, in one place.

- Kedro's file datasets keep the path in `_filepath`, and read it at each load and save. There is
  no public name for it.
- `kedro.framework.project.pipelines.set_requested`: a session that was asked for one pipeline
  leaves only that one known to the process.

`tests/pipelines/test_kedro_internals.py` fails when a version of Kedro has them no longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kedro.framework.project import pipelines
from kedro.pipeline import Pipeline

from m2fdp.files import replacing


class Replacing:
    """Mixed into a file dataset of Kedro's: it saves to another file of the same folder, which
    replaces an older one in a single step."""

    _filepath: PurePosixPath

    @property
    def path(self) -> PurePosixPath:
        """The file."""
        return self._filepath

    def save(self, data: Any) -> None:
        path = self._filepath
        with replacing(Path(path)) as unfinished:
            self._filepath = PurePosixPath(unfinished)
            try:
                super().save(data)  # type: ignore[misc]  # of the data set that this is mixed into
            finally:
                self._filepath = path


def file_of(dataset: Any) -> PurePosixPath | None:
    """The file of a dataset; None if it has none."""
    return getattr(dataset, "_filepath", None)


def all_pipelines() -> Mapping[str, Pipeline]:
    """The project's pipelines by name, also those that this process has not asked for before."""
    pipelines.set_requested(None)
    return pipelines
