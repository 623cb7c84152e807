"""docs/what-goes-together.md, one matrix of facts by features: `python docs/facts.py` from the
root."""

from __future__ import annotations

from pathlib import Path

import m2fdp  # noqa: F401  # which lists the rooms
from m2fdp.core.experiment.checks import features_of_runs
from m2fdp.core.experiment.facts import Feature, told
from m2fdp.core.rooms import brought

PAGE = Path(__file__).parent / "what-goes-together.md"

_TEXT = """\
# What goes together

A run is a set of facts. A feature needs some of them, and a key that breaks one that is needed is
refused in one line, before anything is computed. Where a key is only idle, as nothing in the run
reads it, its place in [configuration.md](configuration.md) says who does. What a mechanism refuses
of the block `privacy` stands in its file in `src/m2fdp/core/privacy/mechanisms`.

This page is made from `src/m2fdp/core/experiment/facts.py`, and from `facts.py` of the rooms, by
`python docs/facts.py`; {algorithm} stands for the algorithm's name.

## Features

Features are looked at in this order. What is refused is the key that breaks the fact, or the
feature's key itself. The last column says what a feature asks of its own values.

| | feature | refused | its own values |
|---:|---|---|---|
"""
_MATRIX = """
## Facts

A dot: the feature of that number needs the fact.

"""


def features_told() -> tuple[Feature, ...]:
    """All features: of runs, and of what can be done with one."""
    of_verbs = (feature for features in brought("verb_features") for feature in features)
    return tuple(dict.fromkeys((*features_of_runs(), *of_verbs)))


def page() -> str:
    """The content of docs/what-goes-together.md."""
    features = features_told()
    facts = dict.fromkeys(fact for feature in features for fact in feature.needs)
    lines, needing = [], {}
    for number, feature in enumerate(features, start=1):
        refused = "" if not feature.needs else "itself" if feature.key else "the fact"
        values = (feature.values.__doc__ or "").strip()
        lines.append(f"| {number} | {feature.name.rstrip(',')} | {refused} | {values} |")
        if feature.needs:
            needing[number] = feature.needs
    heads = "".join(f" {number} |" for number in needing)
    matrix = [f"| key | use | fact |{heads}", "|---|---|---|" + ":-:|" * len(needing)]
    for fact in facts:
        dots = "".join(" ● |" if fact in needs else " |" for needs in needing.values())
        key = told(fact)
        matrix.append(f"| `{key.key}` | {key.remedy} | {fact.text} |{dots}")
    return _TEXT + "\n".join(lines) + "\n" + _MATRIX + "\n".join(matrix) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
