"""The rules of splits and of a user's tables, checked by Great Expectations through Kedro's catalog
(`validator:`)."""

import hashlib
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from kedro.validation.exceptions import DataValidationError

from m2fdp.core.data.manifest import COLUMNS, SPLITS, file_of
from m2fdp.core.data.partitioners import CLOUD
from m2fdp.core.data.sources import N_CLASSES
from m2fdp.core.files import replacing
from m2fdp.expectations.process import CHECKER, PASSED, PROGRAM, conclude
from m2fdp.expectations.rules import Rule
from m2fdp.tables.expected import TABLE, Rows


class _Validator:
    """Checks a table and, if asked, writes what was checked as one page of GX data docs.

    Another process does it (`m2fdp.expectations`). Within a block of `beside`, as in every run,
    the caller goes on meanwhile, and `settle` refuses what this would have refused.

    A table that has passed is not checked again: beside the page a file `.passed` holds the
    digest of everything that the verdict rests on. It guards against change, not against forgery.
    A process, such as a study's worker, has equal tables checked once and writes the page for
    each.

    Args:
        filepath: the HTML file to write, for a table that passes and for one that fails;
            without it no file is kept.
    """

    def __init__(self, filepath: str | None = None) -> None:
        self.filepath = None if filepath is None else Path(filepath)

    def _check(self, digest: str, case: Mapping[str, Any], file: str) -> None:
        if self.filepath is not None:
            page, passed = self.filepath, self.filepath.with_suffix(PASSED)
            are_there = passed.is_file() and page.is_file()
            if are_there and passed.read_text(encoding="utf-8") == _record(digest, page):
                return
            passed.unlink(missing_ok=True)
        CHECKER.ask(digest, case)
        conclude(partial(self._conclude, digest, case["name"], file))

    def _conclude(self, digest: str, name: str, file: str) -> None:
        """Wait for the verdict, write its page, and refuse what it refuses."""
        verdict = CHECKER.verdict(digest)
        if self.filepath is not None:
            with replacing(self.filepath) as unfinished:
                unfinished.write_text(verdict.page, encoding="utf-8")
        if verdict.broken:
            line = f"{file} breaks its rules: {'; '.join(verdict.broken)}"
            raise DataValidationError(line, dataset_name=name)
        if self.filepath is not None:
            with replacing(self.filepath.with_suffix(PASSED)) as unfinished:
                unfinished.write_text(_record(digest, self.filepath), encoding="utf-8")


class ManifestValidator(_Validator):
    """Checks a manifest, see `_Validator`.

    Args:
        min_samples: the fewest training records that a device may hold.
        filepath: the page; see `_Validator`.
    """

    def __init__(self, min_samples: int = 1, filepath: str | None = None) -> None:
        super().__init__(filepath)
        self.min_samples = min_samples

    def validate(self, data: pd.DataFrame) -> pd.DataFrame:
        """The manifest, unchanged.

        Raises:
            DataValidationError: one line that names every rule that is broken.
            UncheckedError: the process that checks it has died.
        """
        _refuse_untyped(data)
        # Only a user's own arrays have no fixed number of classes.
        n_classes = N_CLASSES.get(data["dataset"].iloc[0]) if len(data) else None
        sizes = data.loc[data["split"] == "train", "device"].value_counts()
        table = data.assign(shard_size=data["device"].map(sizes))
        rules = _rules(data, sizes, self.min_samples, n_classes)
        case = {"table": table, "name": "manifest", "rules": rules}
        self._check(self._digest(data), case, file_of(data))
        return data

    def _digest(self, data: pd.DataFrame) -> str:
        """SHA-256 of the manifest, the rules, and the code that applies them."""
        # Values with their types: a null is no empty string, and 1 is not "1".
        columns = [(str(data[name].dtype), data[name].tolist()) for name in COLUMNS]
        return _digest(columns, (self.min_samples, CLOUD, COLUMNS, SPLITS, N_CLASSES))


class TableValidator(_Validator):
    """Checks rows of a user's table by its schema, which is the suite; see `_Validator`."""

    def validate(self, data: Rows) -> Rows:
        """The rows, unchanged.

        Raises:
            DataValidationError: one line that names every rule that is broken.
            UncheckedError: the process that checks it has died.
        """
        if not data.rules:  # of no table; a page of an earlier one would be taken for its
            for file in (self.filepath, self.filepath and self.filepath.with_suffix(PASSED)):
                if file is not None:
                    file.unlink(missing_ok=True)
            return data
        hashed = pd.util.hash_pandas_object(data.table.astype(str), index=False)
        case = {"table": data.table, "name": TABLE, "rules": data.rules}
        self._check(_digest(hashed.to_numpy().tobytes(), data.rules), case, data.name)
        return data


def _digest(*parts: object) -> str:
    """SHA-256 of what a verdict rests on, with the code and libraries that give it."""
    versions = [version(library) for library in ("great-expectations", "pandas")]
    digest = hashlib.sha256(repr((*parts, versions)).encode())
    for code in (Path(__file__), PROGRAM):
        digest.update(code.read_bytes())
    return digest.hexdigest()


def _rules(
    manifest: pd.DataFrame, sizes: pd.Series, min_samples: int, n_classes: int | None
) -> list[Rule]:
    """Of a manifest: each is an expectation on one of its columns, or on `shard_size`, added for
    the check, the training records of the row's device.

    Args:
        sizes: training records by device.
        min_samples: how many a device must hold at least.
        n_classes: how many labels there are; None for a user's own data.
    """
    by_number = not any(isinstance(value, str) for value in manifest["device"])
    cloud: int | str = CLOUD if by_number else str(CLOUD)
    # Names do not tell how many there are. Bounded by the records, lest one wild number stand
    # for millions of devices.
    n_devices = min(sizes.index.max() + 1, sizes.sum()) if by_number and len(sizes) else 0
    devices = list(range(int(n_devices)))
    holders = manifest.loc[manifest["split"] == "validation", "device"]
    devices_hold_out = len(holders) > 0 and bool((holders != cloud).all())
    is_train, is_validation = ("split", True, "train"), ("split", True, "validation")
    at_cloud = ("split", True, "test") if devices_hold_out else ("split", False, "train")
    theirs = "" if devices_hold_out else "validation and "
    held, classes = "ValuesToBeInSet", f"one of 0 to {n_classes - 1}" if n_classes else "at least 0"
    most = n_classes and n_classes - 1
    rules: list[Rule] = []

    def expect(rule: str, kind: str, column: str, condition: Any = None, **options: Any) -> None:
        rules.append((rule, kind, {"column": column, **options}, condition))

    expect("one data set", "UniqueValueCountToBeBetween", "dataset", min_value=1, max_value=1)
    alone = "no sample twice, so none in two devices or in training and test"
    expect(alone, "ValuesToBeUnique", "sample")
    expect(f"every split is one of {', '.join(SPLITS)}", held, "split", value_set=SPLITS)
    there = "training and test records exist"
    expect(there, "DistinctValuesToContainSet", "split", value_set=["train", "test"])
    expect(f"every label is {classes}", "ValuesToBeBetween", "label", min_value=0, max_value=most)
    apart = f"{theirs}test records stay with the cloud (device {cloud})"
    expect(apart, held, "device", at_cloud, value_set=[cloud])
    if devices_hold_out and by_number:
        rule = "validation records are held by devices 0 to n-1"
        expect(rule, held, "device", is_validation, value_set=devices)
    kind = "DistinctValuesToEqualSet" if by_number else "ValuesToNotBeInSet"
    rule = f"training records are held by devices{' 0 to n-1, all of them' * by_number}"
    expect(rule, kind, "device", is_train, value_set=devices if by_number else [cloud])
    rule = f"every device holds at least {min_samples} training records"
    expect(rule, "ValuesToBeBetween", "shard_size", is_train, min_value=min_samples)
    for name in COLUMNS:
        expect(f"no {name} is null", "ValuesToNotBeNull", name)
    return rules


def _record(digest: str, page: Path) -> str:
    """What the file `.passed` holds."""
    return hashlib.sha256(digest.encode() + page.read_bytes()).hexdigest()


def _refuse_untyped(data: pd.DataFrame) -> None:
    """The rules rest on this: the columns, and whole numbers in three unless devices have names."""
    file = file_of(data)
    if list(data.columns) != COLUMNS:
        raise DataValidationError(f"{file} has the columns {list(data.columns)}; valid: {COLUMNS}")
    by_name = any(isinstance(value, str) for value in data["device"])
    for name in ("sample", "label") if by_name else ("sample", "label", "device"):
        numbers = pd.to_numeric(data[name], errors="coerce")
        wrong = data.index[data[name].notna() & ~(numbers % 1 == 0)]
        if len(wrong):
            raise DataValidationError(
                f"{file} has {name} {data.loc[wrong[0], name]!r} in row {wrong[0]}; "
                "valid: whole numbers"
            )
