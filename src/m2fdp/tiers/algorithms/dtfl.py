"""DTFL (D): clients train the beginning of a model, a server the rest, in tiers by their speed."""

from m2fdp.tiers import ways
from m2fdp.tiers.algorithms.in_tiers import star_in_tiers
from m2fdp.tiers.ways import TierAlgorithm

DTFL = TierAlgorithm("dtfl", "DTFL", "method", star_in_tiers, tiers=ways.DTFL)
