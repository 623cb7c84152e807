"""Judged claims in Markdown and in the terminal, and what each one measured as text."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from m2fdp.claims.intervals import SLACK
from m2fdp.claims.judging import verdicts
from m2fdp.claims.measures import MEASURES
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.formatting import counted, parameter, verified
from m2fdp.reporting.tables import markdown, new_table, show

_PAPERS = {"J", "C", "H", "G", "D"}  # what a claim's source begins with
_OF_PAIRS = ("algorithm", "arm", "algorithm_over", "arm_over", "seeds", "difference", "low", "high")


def displayed(judged: pd.DataFrame) -> pd.DataFrame:
    """Judged claims as texts: a row a claim, a column a version, in the order of the study."""
    frame = verdicts(judged).drop(columns="version").rename(columns={"paper": "paper says"})
    versions = judged["version"].cat.remove_unused_categories().cat.categories
    for i, version in enumerate(versions):
        rows = judged[judged["version"] == version].to_dict("records")
        texts = {
            row["claim"]: ": ".join(filter(None, (measured_text(row), row["verdict"])))
            for row in rows
        }
        cells = [texts.get(claim, "–") for claim in frame["claim"]]
        frame.insert(3 + i, _heading(version), cells)
    return frame


def heading(judged: pd.DataFrame) -> str:
    """Of judged claims: whether a paper makes any of them."""
    papers = {str(source).partition(" ")[0] for source in judged["source"]} & _PAPERS
    return "What the paper says" if papers else "Claims"


def pairs_markdown(pairs: pd.DataFrame) -> str:
    """Rows of `m2fdp.claims.measuring.paired_differences` in Markdown, accuracies in points."""
    places = [name for name in pairs.columns if name not in _OF_PAIRS]
    rows = [
        {name: parameter(row[name]) for name in places}
        | {
            "arm": _line(row, ""),
            "less": _line(row, "_over"),
            "seeds": str(row["seeds"]),
            "difference (points)": f"{100 * row['difference']:+.1f}",
            "95 % interval": f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}",
        }
        for row in pairs.to_dict("records")
    ]
    return markdown(pd.DataFrame(rows), [*places, "arm", "less"])


def _line(row: Mapping[Hashable, Any], suffix: str) -> str:
    """An arm's name, or where there are none the algorithm's."""
    title = get_algorithm(str(row[f"algorithm{suffix}"])).title
    arm = row.get(f"arm{suffix}")
    return title if arm is None else f"{arm} ({title})"


def to_markdown(judged: pd.DataFrame) -> str:
    """What `displayed` shows, in Markdown."""
    frame = displayed(judged)
    return markdown(frame, list(frame.columns))


def print_claims(judged: pd.DataFrame, console: Console, title: str) -> None:
    """Judged claims in the terminal: under each, what every version measures."""
    result = new_table(title)
    # Room for the longest versions' names and for "open (the rival was"; the rest of a narrow
    # terminal is for what is measured.
    result.add_column("claim", max_width=29)
    result.add_column("paper, and measured")
    result.add_column("verdict", max_width=22)
    for overall in verdicts(judged).to_dict("records"):
        result.add_row(
            Text(overall["claim"], "bold"),
            Text(f"{overall['source']}: {overall['paper']}"),
            Text(overall["verdict"], "bold"),
        )
        for row in judged[judged["claim"] == overall["claim"]].to_dict("records"):
            texts = (f"  {_heading(row['version'])}", measured_text(row), row["verdict"])
            result.add_row(*map(Text, texts))
        result.add_section()
    show(result, console)


def measured_text(row: Mapping[str, Any]) -> str:
    """What a row of `judge` measured, with n and the verified epsilon; "" where nothing is."""
    if not row["seeds"]:
        return ""
    parts = []
    if row["comparison"] == "trend":
        parts.append(_trend(row))
    elif row["n"]:
        parts.append(_mean_and_std(row))
    if row["n"] < row["seeds"]:
        parts.append(_reached(row))
    privacy, bound = "conditional" if row["conditional"] else "verified", row["epsilon_verified"]
    parts.append("no DP" if math.isnan(bound) else f"ε = {verified(privacy, bound)}")
    return ", ".join(parts)


def _reached(row: Mapping[str, Any]) -> str:
    verb = "reached" if row["measure"].endswith("_to_target") else "measured"
    return f"{verb} in {row['n']} of {counted(row['seeds'], 'seed')}"


def _heading(version: str) -> str:
    return f"measured ({version})" if version else "measured"


def _trend(row: Mapping[str, Any]) -> str:
    """`1.0 → 2.3 → 5.1 steps at control.alpha_1 = 0.01, 1, 100 (n = 3)`."""
    means, measure = pd.Series(row["means"], dtype=float), MEASURES[row["measure"]]
    complete = len(means) > 1 and means.notna().all()
    constant = complete and means.max() - means.min() <= SLACK * max(1.0, means.abs().max())
    values = (
        f"[{', '.join(map(parameter, value))}]" if isinstance(value, tuple) else parameter(value)
        for value in row["values"]
    )
    line = " → ".join(map(measure.text, means)) + (measure.unit and f" {measure.unit}")
    line += " (constant)" if constant else ""
    return f"{line} at {row['trend']} = {', '.join(values)} ({_seeds(row)})"


def _mean_and_std(row: Mapping[str, Any]) -> str:
    """`+5.2 ± 0.4 points (n = 5)`; differences and reductions have a sign."""
    mean, std, measure = row["mean"], row["std"], MEASURES[row["measure"]]
    unit = measure.unit
    if row["comparison"] == "reduction":
        texts, unit = (f"{100 * mean:+.1f}", f"{100 * std:.1f}"), "%"
    elif row["comparison"] == "difference" and measure.share:
        # Steps of a curve are far smaller than its height.
        digits = 1 if row["measure"] == "accuracy" else 2
        texts, unit = (f"{100 * mean:+.{digits}f}", f"{100 * std:.{digits}f}"), "points"
    else:
        sign = "+" if row["comparison"] == "difference" and mean >= 0 else ""
        texts = sign + measure.text(mean), measure.text(std)
    spread = f" ± {texts[1]}" if row["n"] > 1 and not row["computed"] else ""
    return f"{texts[0]}{spread}{f' {unit}' if unit else ''} ({_seeds(row)})"


def _seeds(row: Mapping[str, Any]) -> str:
    """Of how many seeds a number is; equal ones are no sample."""
    return "computed" if row["computed"] else f"n = {row['n']}"
