"""DTFL (D): clients train the beginning of a model, a server the rest, in tiers by their speed."""

from m2fdp.core.algorithms.base import Algorithm
from m2fdp.tiers import ways
from m2fdp.tiers.algorithms.in_tiers import star_in_tiers

DTFL = Algorithm("dtfl", "DTFL", "method", star_in_tiers, tiers=ways.DTFL)
