"""The table of all figures and tables of the papers, a row each, and the claims as pages show them.

What a row is about stands in `docs/results/figures.yml`; its numbers come from the record of its
study.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from m2fdp.claims.intervals import FAILS, HOLDS, IN_DIRECTION, Summary
from m2fdp.claims.judging import verdicts
from m2fdp.claims.measures import MEASURES
from m2fdp.core.blocks import Block
from m2fdp.core.formatting import counted, upper_bound
from m2fdp.given.yaml_files import read_block
from m2fdp.studies.report import Findings

NOT_TESTED = "not tested"
_REPRODUCED = {HOLDS: "yes", IN_DIRECTION: "in direction", FAILS: "no"}
_UNTOLD = "–"
_FILE = Path("docs") / "results" / "figures.yml"
MOST_ROWS = 8  # of a figure's table


class Row(Block):
    """A figure or a table of a paper, and the one claim about it that the table shows."""

    figure: str  # the heading of its section, such as `J Fig. 5, Fashion-MNIST`
    study: str  # what follows `kedro study`
    claim: str | None = None  # of the study's; None = nothing is judged
    paper: str | None = None  # the paper's number; None = the claim's words
    verified: str | None = None  # the version at a verified epsilon
    why: str  # in six words
    minutes: int | None = None  # on two cores, by estimate; None = as its record says


def read_rows(project: Path) -> list[Row]:
    """The rows, in order."""
    content = read_block(project / _FILE) if (project / _FILE).is_file() else {"rows": []}
    return TypeAdapter(list[Row]).validate_python(content["rows"])


def reproduced(verdict: str) -> str:
    """A verdict as people ask for it."""
    words = (word for told, word in _REPRODUCED.items() if verdict.startswith(told))
    if "no " in verdict[:3] or "only" in verdict:
        return NOT_TESTED  # no finished runs
    return next(words, verdict)


def measured(row: Mapping[str, Any] | None) -> str:
    """What a row of `judge` says: mean and 95 % interval, and the epsilon of each side."""
    if row is None or not row["n"]:
        return _UNTOLD if row is None or not row["seeds"] else "not reached"
    measure, unit = MEASURES[row["measure"]], ""
    if row["comparison"] == "trend":
        text = f"{measure.text(row['means'][0])} → {measure.text(row['means'][-1])}"
    else:
        ends = Summary(row["mean"], row["std"], row["n"]).interval()
        scale, show, unit = 1.0, measure.text, measure.unit
        if row["comparison"] == "reduction":
            scale, show, unit = 100.0, _signed, "%"
        elif row["comparison"] == "difference" and measure.share:
            scale, show, unit = 100.0, _signed, "points"
        elif measure.bound:
            show = upper_bound
        low, mean, high = (show(scale * x) for x in (ends[0], row["mean"], ends[1]))
        text = mean if row["computed"] or row["n"] < 2 else f"{mean} [{low}, {high}]"
    text += f" {unit}" if unit else ""
    bounds = dict.fromkeys(upper_bound(x) if x == x else "none" for x in row["epsilons"])  # NaN
    return f"{text}; ε {' / '.join(bounds)}"


def _signed(value: float) -> str:
    return f"{value:+.1f}"


def minutes(found: Findings) -> int:
    """What the study takes on two cores: its runs, and those of its search at their mean time."""
    runs = found.record.runs["seconds"]
    search = found.record.search
    tried = search["new_runs"].sum() if len(search) else 0
    return max(1, round((runs.sum() + tried * runs.mean()) / 120))


def of_version(judged: pd.DataFrame, claim: str, version: str | None) -> Mapping[str, Any] | None:
    """A claim's row of one version; None where it is not judged in it."""
    rows = judged[(judged["claim"] == claim) & (judged["version"] == (version or ""))]
    return dict(zip(map(str, rows), rows.iloc[0], strict=True)) if len(rows) else None


def verified_version(judged: pd.DataFrame, decides: str) -> str | None:
    """The first other version whose private runs keep to the epsilon that is aimed at."""
    runs = judged[judged["version"].ne(decides) & judged["seeds"].gt(0)]
    kept = runs[runs["within_nominal"] & runs["epsilon_verified"].notna()]
    return str(kept["version"].iloc[0]) if len(kept) else None


def claims_table(found: Findings, verified: str | None = None) -> list[dict[str, str]]:
    """A study's claims, a row each: what the paper says, what was measured by its formula and at
    a verified epsilon, and what is reproduced. The paper's come first.

    Args:
        verified: the version at a verified epsilon, of claims that are judged in it; None = the
            first one that is.
    """
    if found.judged is None:
        return []
    judged, study = found.judged, found.study
    overall = verdicts(judged)
    rows = []
    for told in overall.to_dict("records"):
        version = str(told["version"])
        of_claim = judged[judged["claim"] == told["claim"]]
        other = verified if verified in set(of_claim["version"]) else None
        other = other if other not in (None, version) else verified_version(of_claim, version)
        by = of_version(judged, told["claim"], version)
        rows.append(
            {
                "claim": told["claim"],
                "source": told["source"],
                "paper": told["paper"],
                f"deciding version{f' ({study.decides})' if study.decides else ''}": measured(by)
                + ("" if version in ("", study.decides) else f" ({version})"),
                "verified ε": measured(of_version(judged, told["claim"], other))
                if other
                else _UNTOLD,
                "reproduced": reproduced(told["verdict"]),
            }
        )
    return sorted(rows, key=lambda row: row["source"].startswith("this project"))


def cells(row: Row, found: Findings | None) -> dict[str, str]:
    """A row of the table, in Markdown but for the links."""
    by = verified = None
    told, paper = NOT_TESTED, row.paper or row.claim or _UNTOLD
    if found is not None and found.judged is not None and row.claim is not None:
        judged, decides = found.judged, found.study.decides
        (overall,) = verdicts(judged[judged["claim"] == row.claim]).to_dict("records")
        by = of_version(judged, row.claim, decides if decides else str(overall["version"]))
        verified = of_version(judged, row.claim, row.verified)
        if verified is None and by is not None and by["within_nominal"]:
            by, verified = None, by
        told = reproduced(overall["verdict"])
    return {
        "the paper's": paper,
        "by its formula": measured(by),
        "at one verified ε": measured(verified),
        "reproduced": f"**{told}**",
        "why": row.why,
        "minutes": f"≈ {row.minutes}" if row.minutes else str(minutes(found)) if found else _UNTOLD,
    }


def progress(found: Findings) -> str:
    """How many runs there are of how many seeds, and by which code."""
    runs = found.record.runs
    seeds = counted(runs["seed"].nunique(), "seed")
    return f"{found.progress}, {seeds}"
