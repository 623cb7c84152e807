"""Rules of tables and the page of their checks, as a program: cases in, verdicts out.

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

# A sentence, the kind of expectation, its options, and (column, whether equal, value) of its rows.
Rule = tuple[str, str, dict[str, Any], tuple[str, bool, str] | None]

_TIME = re.compile(r"\d{8}T\d{6}\.\d{6}Z")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check(table: pd.DataFrame, name: str, rules: list[Rule]) -> tuple[tuple[str, ...], str]:
    """The rules that are broken, a sentence each, and the page of all checks: one pass over one
    table, in which each rule is an expectation on a column.

    Args:
        name: what the table is called on the page.
        rules: each as a sentence, the expectation's name after `ExpectColumn`, its options, and the
            column and value that a row must have for the rule to hold of it; None = of all.
    """
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.pandas_default.read_dataframe(table, name)
    result = asset.validate(_suite(name, rules))
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


def _suite(name: str, rules: list[Rule]) -> ExpectationSuite:
    import great_expectations as gx
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    expectations = []
    for sentence, kind, options, condition in rules:
        of_rows = {}
        if condition is not None:
            column, is_equal, value = condition
            compared = Column(column) == value if is_equal else Column(column) != value
            of_rows = {"row_condition": compared}
        expectation = getattr(gxe, f"ExpectColumn{kind}")(**options, **of_rows)
        expectation.meta = {"rule": sentence}
        expectations.append(expectation)
    return gx.ExpectationSuite(name, expectations=expectations)


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
