"""What a run is, what its features need, and the one rule that refuses.

A feature times a feature is never told: a feature needs facts, and a key that breaks one is
refused. Keys that nothing reads are another matter: see `m2fdp.core.experiment.idle`.
"""

from m2fdp.core.experiment.facts.features import (
    ATTACK,
    BOUND,
    DEPLOYED,
    EQUAL_ROUNDS,
    FEATURES,
    PLANNED_ROUNDS,
)
from m2fdp.core.experiment.facts.page import page
from m2fdp.core.experiment.facts.rule import Fact, Feature, refusals, refuse
from m2fdp.core.experiment.facts.values import SEES_MODELS

__all__ = [
    "ATTACK",
    "BOUND",
    "DEPLOYED",
    "EQUAL_ROUNDS",
    "FEATURES",
    "PLANNED_ROUNDS",
    "SEES_MODELS",
    "Fact",
    "Feature",
    "page",
    "refusals",
    "refuse",
]
