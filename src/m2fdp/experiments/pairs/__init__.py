"""What goes together with what: one table of pairs of keys and values, by what they are about.

The checks walk it in this order, docs/what-goes-together.md is made from it by
`python -m m2fdp.experiments.pairs`, and one test has a case for every row. Keys that nothing reads
are no pairs: see `m2fdp.experiments.idle`.
"""

from m2fdp.experiments.pairs.attacks import (
    ATTACKS,
    CONTROLLED,
    EQUAL_ROUNDS,
    PLAIN_STEPS,
    SEES_MODELS,
)
from m2fdp.experiments.pairs.base import Pair, first_clash, refuse_clashes, table
from m2fdp.experiments.pairs.control import CONTROL
from m2fdp.experiments.pairs.deployment import DEPLOYED
from m2fdp.experiments.pairs.execution import EXECUTION
from m2fdp.experiments.pairs.privacy import PROMISE, SUMS
from m2fdp.experiments.pairs.rounds import PARTICIPATION, PROXIMAL, RULES, SHORTENED, SLOTS
from m2fdp.experiments.pairs.scores import SCORES
from m2fdp.experiments.pairs.tiers import IN_TIERS, SPLITS

# Of every run, by the title of its part of the page.
TABLES = {
    "Who takes part in a round": PARTICIPATION,
    "The proximal term": PROXIMAL,
    "Steps as short as noise asks": SHORTENED,
    "Rules that keep something of devices": SLOTS,
    "Devices that split their model": SPLITS,
    "Training in tiers": IN_TIERS,
    "Algorithms' own rules": RULES,
    "The promise": PROMISE,
    "Secure aggregation": SUMS,
    "Records that devices hold out": SCORES,
    "The controller": CONTROL,
    "Where rounds are computed": EXECUTION,
}
PAIRS = tuple(pair for pairs in TABLES.values() for pair in pairs)
# Of runs that are audited, bounded, attacked or deployed.
TABLES_OF_TESTS = {
    "Audit, bound and attack": EQUAL_ROUNDS,
    "The bound": PLAIN_STEPS,
    "Attacks": ATTACKS,
    "Trees of real processes": DEPLOYED,
}

_INTRODUCTION = """\
# What goes together

Keys whose values do not go together, each with the line that says so: before anything is computed,
and in this order. Where a key is only idle, as nothing in the run reads it, its place in
[configuration.md](configuration.md) says who does. What a mechanism refuses of the block `privacy`
stands in its file in `src/m2fdp/privacy/mechanisms`.

This page is made from the table in `src/m2fdp/experiments/pairs` by
`python -m m2fdp.experiments.pairs`; {…} stands for what the configuration has.
"""


def page() -> str:
    """The content of docs/what-goes-together.md."""
    parts = [_INTRODUCTION]
    for title, pairs in (TABLES | TABLES_OF_TESTS).items():
        parts += [f"## {title}\n", table(pairs)]
    return "\n".join(parts)


__all__ = [
    "ATTACKS",
    "DEPLOYED",
    "CONTROLLED",
    "EQUAL_ROUNDS",
    "PAIRS",
    "PLAIN_STEPS",
    "SEES_MODELS",
    "TABLES",
    "TABLES_OF_TESTS",
    "Pair",
    "first_clash",
    "page",
    "refuse_clashes",
]
