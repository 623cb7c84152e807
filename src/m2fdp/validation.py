"""The split's rules, checked by Great Expectations through Kedro's catalog (`validator:`)."""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from kedro.validation.exceptions import DataValidationError

from m2fdp.data.manifest import CLOUD, COLUMNS, SPLITS, file_of, held_out
from m2fdp.data.sources import N_CLASSES
from m2fdp.files import replacing

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite, ExpectationSuiteValidationResult
    from great_expectations.render.view import DefaultJinjaPageView

_TIME = re.compile(r"\d{8}T\d{6}\.\d{6}Z")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ManifestValidator:
    """Checks a manifest and, if asked, writes what was checked as one page of GX data docs.

    One pass over one table: each rule is an expectation on a column of the manifest, or on
    `shard_size`, added for the check: the training records of the row's device.

    A manifest that has passed is not checked again: beside the page a file `.passed` holds the
    digest of everything that the verdict rests on. It guards against change, not against forgery.
    A process, such as a study's worker, checks equal manifests once and writes the page for each.

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
        """
        _refuse_untyped(data)
        case = _Case(
            self._digest(data), self.min_samples, self.filepath is not None, weakref.ref(data)
        )
        if self.filepath is None:
            _refuse_failed(_verdict(case), file_of(data))
            return data
        page, passed = self.filepath, self.filepath.with_suffix(".passed")
        if passed.is_file() and page.is_file() and passed.read_text() == _record(case, page):
            return data
        passed.unlink(missing_ok=True)
        verdict = _verdict(case)
        with replacing(page) as unfinished:
            unfinished.write_text(verdict.page, encoding="utf-8")
        _refuse_failed(verdict, file_of(data))
        with replacing(passed) as unfinished:
            unfinished.write_text(_record(case, page))
        return data

    def _digest(self, data: pd.DataFrame) -> str:
        """SHA-256 of the manifest, the rules, and the code that applies them."""
        # Values with their types: a null is no empty string, and 1 is not "1".
        columns = [(str(data[name].dtype), data[name].tolist()) for name in COLUMNS]
        rules = (self.min_samples, CLOUD, COLUMNS, SPLITS, N_CLASSES)
        versions = [version(library) for library in ("great-expectations", "pandas")]
        digest = hashlib.sha256(repr((columns, rules, versions)).encode())
        digest.update(Path(__file__).read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class _Case:
    """A manifest to be judged, known by all that the verdict rests on.

    Attributes:
        digest: SHA-256 of `ManifestValidator`.
        paged: whether the page is asked for.
        manifest: it, not kept alive for what is known already.
    """

    digest: str
    min_samples: int
    paged: bool
    manifest: Callable[[], pd.DataFrame | None] = field(compare=False)


class _Verdict(NamedTuple):
    """The rules that are broken, and the page of all checks."""

    broken: tuple[str, ...]
    page: str


@lru_cache(maxsize=64)
def _verdict(case: _Case) -> _Verdict:
    manifest = case.manifest()
    assert manifest is not None  # the caller holds it
    result = _check(manifest, case.min_samples)
    broken = (_sentence(check) for check in result.results if not check.success)
    return _Verdict(tuple(broken), _page(result) if case.paged else "")


def _record(case: _Case, page: Path) -> str:
    """What the file `.passed` holds."""
    return hashlib.sha256(case.digest.encode() + page.read_bytes()).hexdigest()


def _check(data: pd.DataFrame, min_samples: int) -> ExpectationSuiteValidationResult:
    # Imported here because it takes seconds.
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    sizes = data.loc[data["split"] == "train", "device"].value_counts()
    shard_size = data["device"].map(sizes)
    # Bounded by the records, lest one wild device number stand for millions of devices.
    n_devices = int(min(sizes.index.max() + 1, sizes.sum())) if len(sizes) else 0
    # Only a user's own arrays have no fixed number of classes.
    n_classes = N_CLASSES.get(data["dataset"].iloc[0]) if len(data) else None

    context = gx.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            store_backend_defaults=InMemoryStoreBackendDefaults(),
            progress_bars=ProgressBarsConfig(globally=False),
            analytics_enabled=False,
        ),
    )
    batch = (
        context.data_sources.add_pandas("m2fdp")
        .add_dataframe_asset("manifest")
        .add_batch_definition_whole_dataframe("all")
        .get_batch(batch_parameters={"dataframe": data.assign(shard_size=shard_size)})
    )
    holders = held_out(data, "validation")[1]
    devices_hold_out = len(holders) > 0 and bool((holders != CLOUD).all())
    return batch.validate(_suite(min_samples, n_devices, n_classes, devices_hold_out))


def _refuse_untyped(data: pd.DataFrame) -> None:
    """What the rules take for granted: the columns, and whole numbers or nothing in three."""
    file = file_of(data)
    if list(data.columns) != COLUMNS:
        raise DataValidationError(f"{file} has the columns {list(data.columns)}; valid: {COLUMNS}")
    for name in ("sample", "label", "device"):
        numbers = pd.to_numeric(data[name], errors="coerce")
        wrong = data.index[data[name].notna() & ~(numbers % 1 == 0)]
        if len(wrong):
            raise DataValidationError(
                f"{file} has {name} {data.loc[wrong[0], name]!r} in row {wrong[0]}; "
                "valid: whole numbers"
            )


def _refuse_failed(verdict: _Verdict, file: str) -> None:
    if verdict.broken:
        raise DataValidationError(f"{file} breaks its rules: {'; '.join(verdict.broken)}")


def _suite(
    min_samples: int, n_devices: int, n_classes: int | None, devices_hold_out: bool
) -> ExpectationSuite:
    import great_expectations as gx
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    is_train = Column("split") == "train"
    at_cloud = Column("split") == "test" if devices_hold_out else Column("split") != "train"
    theirs = "" if devices_hold_out else "validation and "
    rules = {
        "one data set": gxe.ExpectColumnUniqueValueCountToBeBetween(
            column="dataset", min_value=1, max_value=1
        ),
        "no sample twice, so none in two devices or in training and test": (
            gxe.ExpectColumnValuesToBeUnique(column="sample")
        ),
        f"every split is one of {', '.join(SPLITS)}": gxe.ExpectColumnValuesToBeInSet(
            column="split", value_set=SPLITS
        ),
        "training and test records exist": gxe.ExpectColumnDistinctValuesToContainSet(
            column="split", value_set=["train", "test"]
        ),
        f"every label is {f'one of 0 to {n_classes - 1}' if n_classes else 'at least 0'}": (
            gxe.ExpectColumnValuesToBeBetween(
                column="label", min_value=0, max_value=n_classes and n_classes - 1
            )
        ),
        f"{theirs}test records stay with the cloud (device {CLOUD})": (
            gxe.ExpectColumnValuesToBeInSet(
                column="device", value_set=[CLOUD], row_condition=at_cloud
            )
        ),
        **(
            {
                "validation records are held by devices 0 to n-1": (
                    gxe.ExpectColumnValuesToBeInSet(
                        column="device",
                        value_set=list(range(n_devices)),
                        row_condition=Column("split") == "validation",
                    )
                )
            }
            if devices_hold_out
            else {}
        ),
        "training records are held by devices 0 to n-1, all of them": (
            gxe.ExpectColumnDistinctValuesToEqualSet(
                column="device", value_set=list(range(n_devices)), row_condition=is_train
            )
        ),
        f"every device holds at least {min_samples} training records": (
            gxe.ExpectColumnValuesToBeBetween(
                column="shard_size", min_value=min_samples, row_condition=is_train
            )
        ),
    } | {f"no {name} is null": gxe.ExpectColumnValuesToNotBeNull(column=name) for name in COLUMNS}
    for rule, expectation in rules.items():
        expectation.meta = {"rule": rule}
    return gx.ExpectationSuite("manifest", expectations=list(rules.values()))


def _sentence(check: Any) -> str:
    """The rule that a failed check stands for, with the first values that break it."""
    rule = check.expectation_config.meta["rule"]
    if check.exception_info.get("raised_exception"):
        return f"{rule} (not checkable: {check.exception_info['exception_message']})"
    result = check.result
    if found := result.get("partial_unexpected_list"):
        detail = f"found {_first(found)}"
    elif absent := result.get("partial_missing_list"):
        detail = f"absent: {_first(absent)}"
    else:
        detail = f"found {result.get('observed_value')}"
    rows = f"; rows: {result['unexpected_count']}" if "element_count" in result else ""
    return f"{rule} ({detail}{rows})"


def _first(values: list[Any]) -> str:
    """Three of the values, in an order of their own: Great Expectations keeps some in sets."""
    distinct = sorted({str(value) for value in values}, key=lambda text: (len(text), text))
    return ", ".join(distinct[:3])


def _page(result: ExpectationSuiteValidationResult) -> str:
    from great_expectations.render.renderer import ValidationResultsPageRenderer

    page = _view().render(ValidationResultsPageRenderer().render(result))
    # The same manifest makes the same page: no times, and random names numbered as they occur.
    page = _TIME.sub("", page)
    numbers = {name: str(n) for n, name in enumerate(dict.fromkeys(_UUID.findall(page)))}
    return _UUID.sub(lambda match: numbers[match.group()], page)


@cache
def _view() -> DefaultJinjaPageView:
    """It compiles its templates, which takes longer than to fill them."""
    from great_expectations.render.view import DefaultJinjaPageView

    return DefaultJinjaPageView()
