"""The rules of a split and the page of their checks, as a program: cases in, verdicts out.

It imports Great Expectations and nothing of the project, so that it needs neither torch nor the
project's path. Cases come as pickles on standard input, answers go as pickles to standard output.
"""

from __future__ import annotations

import os
import pickle
import queue
import re
import sys
import threading
import traceback
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.core import ExpectationSuite, ExpectationSuiteValidationResult
    from great_expectations.render.view import DefaultJinjaPageView

_TIME = re.compile(r"\d{8}T\d{6}\.\d{6}Z")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check(manifest: pd.DataFrame, **given: Any) -> tuple[tuple[str, ...], str]:
    """The rules that are broken, a sentence each, and the page of all checks.

    One pass over one table: each rule is an expectation on a column of the manifest, or on
    `shard_size`, added for the check: the training records of the row's device.

    Args:
        given: what `_rules` takes beside the manifest.
    """
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    sizes = manifest.loc[manifest["split"] == "train", "device"].value_counts()
    table = manifest.assign(shard_size=manifest["device"].map(sizes))
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.pandas_default.read_dataframe(table, "manifest")
    result = asset.validate(_rules(manifest, sizes, **given))
    broken = tuple(_sentence(each) for each in result.results if not each.success)
    return broken, _page(result)


def serve() -> None:
    """Answer one case after the other, until whoever asks is gone."""
    # Whatever prints here prints no answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    cases: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
    # At once, so that nobody waits to send a case.
    threading.Thread(target=_receive, args=(cases,), daemon=True).start()
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # nothing is reported to its makers
    import great_expectations  # noqa: F401

    while True:
        digest, case = cases.get()
        verdict, failure = None, None
        try:
            verdict = check(**pickle.loads(case))
        except Exception as error:
            traceback.print_exc()
            failure = f"{type(error).__name__}: {error}"
        pickle.dump((digest, verdict, failure), answers)
        answers.flush()


def _receive(cases: queue.SimpleQueue[tuple[str, bytes]]) -> None:
    """The end of the input is the end of the process, whatever it does."""
    try:
        while True:
            cases.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


def _rules(
    manifest: pd.DataFrame,
    sizes: pd.Series,
    min_samples: int,
    n_classes: int | None,
    columns: list[str],
    splits: list[str],
    cloud: int | str,
) -> ExpectationSuite:
    """Of devices that hold so many training records at least (`min_samples`), and of labels of
    `n_classes`, None for a user's own data; `cloud` is the device that stands for the cloud."""
    import great_expectations as gx
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    by_number = not any(isinstance(value, str) for value in manifest["device"])
    cloud = cloud if by_number else str(cloud)
    # Names do not tell how many there are. Bounded by the records, lest one wild number stand
    # for millions of devices.
    n_devices = min(sizes.index.max() + 1, sizes.sum()) if by_number and len(sizes) else 0
    devices = list(range(int(n_devices)))
    holders = manifest.loc[manifest["split"] == "validation", "device"]
    devices_hold_out = len(holders) > 0 and bool((holders != cloud).all())
    is_train, is_validation = Column("split") == "train", Column("split") == "validation"
    at_cloud = Column("split") == "test" if devices_hold_out else Column("split") != "train"
    theirs = "" if devices_hold_out else "validation and "

    def expect(kind: str, column: str, **options: Any) -> Any:
        return getattr(gxe, f"ExpectColumn{kind}")(column=column, **options)

    held, classes = "ValuesToBeInSet", f"one of 0 to {n_classes - 1}" if n_classes else "at least 0"
    most = n_classes and n_classes - 1
    rules = {
        "one data set": expect("UniqueValueCountToBeBetween", "dataset", min_value=1, max_value=1),
        "no sample twice, so none in two devices or in training and test": (
            expect("ValuesToBeUnique", "sample")
        ),
        f"every split is one of {', '.join(splits)}": expect(held, "split", value_set=splits),
        "training and test records exist": (
            expect("DistinctValuesToContainSet", "split", value_set=["train", "test"])
        ),
        f"every label is {classes}": (
            expect("ValuesToBeBetween", "label", min_value=0, max_value=most)
        ),
        f"{theirs}test records stay with the cloud (device {cloud})": (
            expect(held, "device", value_set=[cloud], row_condition=at_cloud)
        ),
    }
    if devices_hold_out and by_number:
        rules["validation records are held by devices 0 to n-1"] = expect(
            held, "device", value_set=devices, row_condition=is_validation
        )
    kind = "DistinctValuesToEqualSet" if by_number else "ValuesToNotBeInSet"
    values = devices if by_number else [cloud]
    rules |= {
        f"training records are held by devices{' 0 to n-1, all of them' * by_number}": (
            expect(kind, "device", value_set=values, row_condition=is_train)
        ),
        f"every device holds at least {min_samples} training records": expect(
            "ValuesToBeBetween", "shard_size", min_value=min_samples, row_condition=is_train
        ),
    } | {f"no {name} is null": expect("ValuesToNotBeNull", name) for name in columns}
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


if __name__ == "__main__":
    serve()
