"""docs/what-goes-together.md, which features need which facts: `python docs/facts.py` from the
root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import m2fdp  # noqa: F401  # which lists the rooms
from m2fdp.core.experiment.checks import features_of_runs
from m2fdp.core.experiment.facts import Feature, told
from m2fdp.core.rooms import brought

PAGE = Path(__file__).parent / "what-goes-together.md"

_TEXT = """\
# What goes together

Here you look up which settings exclude each other. A run is a set of facts. A feature needs some of
them. A key that breaks a needed fact is refused in one line, before anything is computed. Keys that
nothing in the run reads are in [configuration.md](configuration.md).

This page is made from `src/m2fdp/core/experiment/facts.py`, and from `facts.py` of the rooms, by
`python docs/facts.py`; {algorithm} stands for the algorithm's name.

## Features

Features are looked at in this order. *Itself* means that the feature's own key is refused, not the
key that breaks the fact.

| | feature | what it asks of its own values |
|---:|---|---|
"""
_FACTS = """
## Facts

The last column has the numbers of the features that need the fact.

| key | use | which makes | needed by |
|---|---|---|---|
"""


def features_told() -> tuple[Feature, ...]:
    """All features: of runs, and of what can be done with one."""
    of_verbs = (feature for features in brought("verb_features") for feature in features)
    return tuple(dict.fromkeys((*features_of_runs(), *of_verbs)))


def page() -> str:
    """The content of docs/what-goes-together.md."""
    lines, needing = [], dict[Any, list[str]]()
    for number, feature in enumerate(features_told(), start=1):
        itself = " (itself)" if feature.needs and feature.key else ""
        values = (feature.values.__doc__ or "").strip()
        lines.append(f"| {number} | {feature.name.rstrip(',')}{itself} | {values} |")
        for fact in feature.needs:
            needing.setdefault(fact, []).append(str(number))
    facts = [
        f"| `{told(fact).key}` | {told(fact).remedy} | {fact.text} | {', '.join(numbers)} |"
        for fact, numbers in needing.items()
    ]
    return _TEXT + "\n".join(lines) + "\n" + _FACTS + "\n".join(facts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
