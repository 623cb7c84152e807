"""What the project uses of Kedro that Kedro promises nobody, in one place.

- Kedro's file datasets keep the path in `_filepath`, and read it at each load and save. There is
  no public name for it.
- `kedro.framework.project.pipelines.set_requested`: a session that was asked for one pipeline
  leaves only that one known to the process.
- `OmegaConfigLoader._read_dir_configs`: the files of one environment, and `_check_duplicates` of
  them. OmegaConf reads YAML 1.1, and has no other way to be told how to read numbers.

`tests/pipelines/test_kedro_internals.py` fails when a version of Kedro has them no longer.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kedro.config import OmegaConfigLoader
from kedro.pipeline import Pipeline
from omegaconf import OmegaConf

from m2fdp.core.files import replacing


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


class StrictFiles(OmegaConfigLoader):
    """Kedro's loader, of files that are read in the project's own way."""

    @abstractmethod
    def files(self, key: str) -> Iterator[Path]:
        """All files that may hold configuration of that kind; none where they can't be listed."""

    @abstractmethod
    def content(self, key: str, file: Path) -> dict[str, Any]:
        """What a file of that kind says."""

    def _read_dir_configs(self, folder: str, patterns: Any, key: str, read: set, *rest: Any) -> Any:
        contents = {
            file: OmegaConf.create(self.content(key, file))
            for file in self.files(key)
            if file.is_relative_to(folder)
        }
        # Credentials may take values from the environment.
        if not contents or key == "credentials":
            return super()._read_dir_configs(folder, patterns, key, read, *rest)
        read.update(contents)
        self._check_duplicates(key, contents)
        return contents


def file_of(dataset: Any) -> PurePosixPath | None:
    """The file of a dataset; None if it has none."""
    return getattr(dataset, "_filepath", None)


def all_pipelines() -> Mapping[str, Pipeline]:
    """The project's pipelines by name, also those that this process has not asked for before."""
    # Kedro sets up logs and displays here, which a notebook that only reads should be spared.
    from kedro.framework.project import pipelines

    pipelines.set_requested(None)
    return pipelines
