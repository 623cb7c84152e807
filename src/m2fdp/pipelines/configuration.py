"""Kedro's project, its configuration files and its catalog: what is wrong in them ends in one line
that names the file."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from kedro.config import MissingConfigException, OmegaConfigLoader
from kedro.io import DataCatalog, DatasetError
from kedro.utils import find_kedro_project
from omegaconf import OmegaConf
from omegaconf.errors import (
    ConfigTypeError,
    GrammarParseError,
    InterpolationResolutionError,
    OmegaConfBaseException,
)

from m2fdp.core.errors import InputError, among, chain
from m2fdp.core.files import shown
from m2fdp.given.loading import read_parameters, unread_files
from m2fdp.given.yaml_files import line_of, read_block
from m2fdp.interruption import deferred

_SUFFIXES = (".yml", ".yaml", ".json")
# By the kind of configuration without which nothing runs: the file of the base environment.
_NEEDED = {"parameters": "parameters.yml", "catalog": "catalog.yml", "mlflow": "mlflow.yml"}


def project_of(folder: Path) -> Path:
    """The project that a folder, such as a notebook's, is in."""
    if (project := find_kedro_project(folder)) is None:
        remedy = "is in no project of m2fdp; start from the project's folder or one below it"
        raise InputError("folder", str(folder), remedy)
    return project


class StrictConfigLoader(OmegaConfigLoader):
    """Kedro's loader for a folder of environments, of files that are read in the project's own way,
    with an `InputError` for whatever a user can have written wrong.

    OmegaConf reads YAML 1.1, and there is no public way to tell it how to read numbers: this
    overrides Kedro's `_read_dir_configs`, for the files of one environment.
    """

    def __init__(self, conf_source: str | Path, env: str | None = None, **options: Any) -> None:
        _check_environment(Path(conf_source), env or options.get("default_run_env"))
        self._read: dict[str, dict[str, Any]] = {}
        super().__init__(conf_source, env, **options)

    def __getitem__(self, key: str) -> dict[str, Any]:
        """The configuration of a kind: parameters, catalog, credentials, globals or mlflow.

        Files are read once a session: each reading takes a tenth of a second, and many ask.

        Raises:
            InputError: a file that is no YAML, holds no keys or sets one twice, or a value that
                refers to something that is not there.
        """
        if key in self:  # somebody has set it, files or not
            return super().__getitem__(key)
        if key not in self._read:
            self._read[key] = self._from_files(key)
        return deepcopy(self._read[key])

    def _from_files(self, key: str) -> dict[str, Any]:
        try:
            return super().__getitem__(key)
        except InputError:
            raise
        except MissingConfigException:
            if key not in _NEEDED:
                raise
            file = shown(Path(self.conf_source) / self.base_env / _NEEDED[key])
            remedy = "no such file; git checkout brings it back"
            raise InputError("file", file, remedy) from None
        except (GrammarParseError, InterpolationResolutionError) as error:
            raise self._unresolved(key, error) from None
        except (ConfigTypeError, ValueError) as error:  # Kedro has no types of its own
            contents = [_content(key, file) for file in self._files(key)]
            if key == "parameters":
                contents.insert(0, self.runtime_params or {})
            for dotted, value in _clashes(contents):
                clash = "is a list in one place, keys in another"
                raise InputError(self.place(key, dotted), value, clash) from None
            two_files, colon, keys = str(error).partition("\n")[0].rpartition(": ")
            if not (colon and two_files.startswith("Duplicate keys found in ")):
                raise
            both = two_files.removeprefix("Duplicate keys found in ")
            both = both.replace(f"{Path.cwd().as_posix()}/", "")
            raise InputError(keys, "(twice)", f"is set in {both}; keep one") from None

    def _read_dir_configs(self, folder: str, patterns: Any, key: str, read: set, *rest: Any) -> Any:
        files = [file for file in self._files(key) if file.is_relative_to(folder)]
        contents = {file: OmegaConf.create(_content(key, file)) for file in files}
        # Credentials may take values from the environment.
        if not contents or key == "credentials":
            return super()._read_dir_configs(folder, patterns, key, read, *rest)
        read.update(contents)
        self._check_duplicates(key, contents)
        return contents

    def _files(self, key: str) -> Iterator[Path]:
        """The files that may hold configuration of that kind, the environment's first."""
        for env in dict.fromkeys((self.env or self.default_run_env, self.base_env)):
            folder = Path(self.conf_source) / env
            patterns = self.config_patterns.get(key, (f"**/{key}*",))
            for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
                files = path.rglob("*") if path.is_dir() else (path,)
                yield from (file for file in files if file.suffix in _SUFFIXES)

    def unread(self) -> list[Path]:
        """Files in conf/ and in the environments in use that look like configuration and that
        nothing reads; refused where the name is almost that of a file that is read."""
        conf, parameters = Path(self.conf_source), self["parameters"]
        for file in sorted(conf.glob("*.*")):
            if file.is_file() and file.name.startswith((*_NEEDED, "credentials", "globals")):
                remedy = f"nothing reads it there; move it to {shown(conf / self.default_run_env)}"
                raise InputError("file", shown(file), remedy)
        envs = {self.base_env, self.env or self.default_run_env}
        return [file for env in sorted(envs) for file in unread_files(conf / env, parameters)]

    def place(self, key: str, dotted: str) -> str:
        """File and line that set a dotted key, as far as they can be found."""
        keys = dotted.split(".")
        if key == "parameters" and _value_at(self.runtime_params, keys) is not None:
            return f"--params {dotted}"
        for parts in (keys[:n] for n in range(len(keys), 0, -1)):
            for file in self._files(key):
                if (line := line_of(file, parts)) is not None:
                    return f"{shown(file)}, line {line}: {dotted}"
        return f"{key}: {dotted}"

    def _unresolved(self, key: str, error: OmegaConfBaseException) -> Exception:
        """A line for a reference to nowhere; what a resolver raises itself goes on."""
        cause = error.__cause__
        if isinstance(cause, InputError):
            return cause
        if cause is not None and not isinstance(cause, OmegaConfBaseException):
            return error
        place = self.place(key, error.full_key or "")
        return InputError(place, "(unresolved)", str(error).partition("\n")[0])


def _content(key: str, file: Path) -> dict[str, Any]:
    """What a file of that kind says."""
    # A file that can't be read is refused by whoever parses it.
    written = file.read_bytes() if os.access(file, os.R_OK) and file.is_file() else b""
    return _parsed(read_parameters if key == "parameters" else read_block, file, written)


@lru_cache(maxsize=64)
def _parsed(read: Callable[[Path], dict[str, Any]], file: Path, written: bytes) -> dict[str, Any]:
    """What a file says; a process parses the same bytes once, however many sessions it has."""
    return read(file)


def _clashes(contents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Dotted keys, and their values, that one of the contents has as a list and one as a block."""
    for one, another in itertools.combinations(contents, 2):
        for key, value in one.items():
            other = another.get(key)
            if isinstance(value, Mapping) and isinstance(other, Mapping):
                yield from ((f"{key}.{deep}", v) for deep, v in _clashes([value, other]))
            elif {type(value), type(other)} == {dict, list}:
                yield str(key), value


def check_catalog(loader: StrictConfigLoader) -> None:
    """Refuse a catalog with an entry that no dataset can be made of."""
    entries = loader["catalog"]
    try:
        credentials = loader["credentials"]
    except MissingConfigException:
        credentials = {}
    for name, entry in entries.items():
        if "{" in name:  # a pattern, of which Kedro makes entries
            continue
        try:
            DataCatalog.from_config({name: entry}, credentials)[name]
        except (DatasetError, KeyError) as error:
            kind = entry.get("type", "(no type)") if isinstance(entry, dict) else entry
            reason = str(error).split("\nHint")[0].split(". Please install")[0]
            reason = " ".join(reason.rpartition("for dataset")[2].split())
            raise InputError(loader.place("catalog", name), kind, reason) from None
    manifest = "manifest.dataset.filepath", "manifest.validator.options.filepath"
    for dotted in (*manifest, "checkpoints.path"):
        value = _value_at(entries, dotted.split("."))
        if not isinstance(value, str):
            place = loader.place("catalog", dotted)
            raise InputError(place, value, "must be a path; the entry in conf/base has it")


def _value_at(content: Any, keys: Sequence[str]) -> Any:
    """What a block holds at a key inside blocks; None where it has no such key."""
    for key in keys:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _check_environment(conf: Path, env: str | None) -> None:
    if not conf.is_dir():  # an archive, or remote
        return
    folders = (path.name for path in conf.iterdir() if path.is_dir())
    valid = sorted(name for name in folders if not name.startswith("."))
    if env not in valid:
        raise InputError("--env", env, f"no such environment; there are {among(env, valid)}")


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


@dataclass(frozen=True)
class CatalogEntries:
    """What the catalog's configuration says about the datasets that a run makes."""

    files: Mapping[str, Path]  # dataset -> its file or folder, of those that have one
    artifacts: frozenset[str]  # datasets whose files MLflow keeps
    metrics: Mapping[str, str]  # dataset -> the name of the metric that it is in MLflow
    manifest_checks: Path  # the page of the split's checks
    table_checks: Path  # that of a user's own table, if there is one

    @classmethod
    def of(cls, conf_catalog: Mapping[str, Any]) -> Self:
        """Of a checked catalog (`check_catalog`)."""
        described = {name: entry.get("dataset", entry) for name, entry in conf_catalog.items()}
        places = {name: e.get("filepath", e.get("path")) for name, e in described.items()}
        kinds = {name: entry["type"].rpartition(".")[2] for name, entry in conf_catalog.items()}
        metrics = [name for name in kinds if kinds[name] == "MlflowMetricDataset"]
        return cls(
            files={name: Path(place) for name, place in places.items() if place},
            artifacts=frozenset(n for n in kinds if kinds[n] == "MlflowArtifactDataset"),
            metrics={name: conf_catalog[name].get("key") or name for name in metrics},
            manifest_checks=_page(conf_catalog["manifest"]),
            table_checks=_page(conf_catalog["table_rows"]),
        )

    @property
    def cell_folder(self) -> Path:
        """The run's own checkpoints and notes."""
        return self.files["checkpoints"].parent

    def printed(self, name: str) -> Path | None:
        """Where what is saved as PNG is as PDF, if the run wants it; None for other datasets."""
        file = self.files.get(name, Path())
        return file.with_suffix(".pdf") if file.suffix == ".png" else None

    def remove(self, name: str) -> None:
        """Remove the files that a dataset may have."""
        for file in (self.files.get(name), self.printed(name)):
            if file is not None:
                file.unlink(missing_ok=True)


def _page(entry: Mapping[str, Any]) -> Path:
    """The page that the validator of an entry of the catalog writes."""
    return Path(entry["validator"]["options"]["filepath"])
