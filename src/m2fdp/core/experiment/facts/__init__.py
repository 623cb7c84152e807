"""What a run is, what its features need, and the one rule that refuses.

A feature times a feature is never told: a feature needs facts, and a key that breaks one is
refused. A room tells the facts that its keys break and the features that it brings. Keys that
nothing reads are another matter: see `m2fdp.core.experiment.idle`.
"""

from m2fdp.core.experiment.facts.features import features_of_runs
from m2fdp.core.experiment.facts.rule import Fact, Feature, refusals, refuse

__all__ = ["Fact", "Feature", "features_of_runs", "refusals", "refuse"]
