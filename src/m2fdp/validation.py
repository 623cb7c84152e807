"""The split's rules, checked by Great Expectations through Kedro's catalog (`validator:`)."""

import hashlib
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from kedro.validation.exceptions import DataValidationError

from m2fdp.core.data.manifest import COLUMNS, SPLITS, file_of
from m2fdp.core.data.partitioners import CLOUD
from m2fdp.core.data.sources import N_CLASSES
from m2fdp.core.files import replacing
from m2fdp.expectations.process import CHECKER, PASSED, PROGRAM, conclude


class ManifestValidator:
    """Checks a manifest and, if asked, writes what was checked as one page of GX data docs.

    Another process does it (`m2fdp.expectations`). Within a block of `beside`, as in every run,
    the caller goes on meanwhile, and `settle` refuses what this would have refused.

    A manifest that has passed is not checked again: beside the page a file `.passed` holds the
    digest of everything that the verdict rests on. It guards against change, not against forgery.
    A process, such as a study's worker, has equal manifests checked once and writes the page for
    each.

    Args:
        min_samples: the fewest training records that a device may hold.
        filepath: the HTML file to write, for a manifest that passes and for one that fails;
            without it no file is kept.
    """

    def __init__(self, min_samples: int = 1, filepath: str | None = None) -> None:
        self.min_samples = min_samples
        self.filepath = None if filepath is None else Path(filepath)

    def validate(self, data: pd.DataFrame) -> pd.DataFrame:
        """The manifest, unchanged.

        Raises:
            DataValidationError: one line that names every rule that is broken.
            UncheckedError: the process that checks it has died.
        """
        _refuse_untyped(data)
        digest = self._digest(data)
        if self.filepath is not None:
            page, passed = self.filepath, self.filepath.with_suffix(PASSED)
            are_there = passed.is_file() and page.is_file()
            if are_there and passed.read_text(encoding="utf-8") == _record(digest, page):
                return data
            passed.unlink(missing_ok=True)
        case = {
            "manifest": data,
            "min_samples": self.min_samples,
            # Only a user's own arrays have no fixed number of classes.
            "n_classes": N_CLASSES.get(data["dataset"].iloc[0]) if len(data) else None,
            "columns": COLUMNS,
            "splits": SPLITS,
            "cloud": CLOUD,
        }
        CHECKER.ask(digest, case)
        conclude(partial(self._conclude, digest, file_of(data)))
        return data

    def _conclude(self, digest: str, file: str) -> None:
        """Wait for the verdict, write its page, and refuse what it refuses."""
        verdict = CHECKER.verdict(digest)
        if self.filepath is not None:
            with replacing(self.filepath) as unfinished:
                unfinished.write_text(verdict.page, encoding="utf-8")
        if verdict.broken:
            line = f"{file} breaks its rules: {'; '.join(verdict.broken)}"
            raise DataValidationError(line, dataset_name="manifest")
        if self.filepath is not None:
            with replacing(self.filepath.with_suffix(PASSED)) as unfinished:
                unfinished.write_text(_record(digest, self.filepath), encoding="utf-8")

    def _digest(self, data: pd.DataFrame) -> str:
        """SHA-256 of the manifest, the rules, and the code that applies them."""
        # Values with their types: a null is no empty string, and 1 is not "1".
        columns = [(str(data[name].dtype), data[name].tolist()) for name in COLUMNS]
        rules = (self.min_samples, CLOUD, COLUMNS, SPLITS, N_CLASSES)
        versions = [version(library) for library in ("great-expectations", "pandas")]
        digest = hashlib.sha256(repr((columns, rules, versions)).encode())
        for code in (Path(__file__), PROGRAM):
            digest.update(code.read_bytes())
        return digest.hexdigest()


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
