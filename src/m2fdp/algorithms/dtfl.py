"""DTFL (D): clients train the beginning of a model, a server the rest, in tiers by their speed."""

from m2fdp.algorithms.base import Algorithm
from m2fdp.algorithms.in_tiers import star_in_tiers
from m2fdp.tiering import ways

DTFL = Algorithm("dtfl", "DTFL", "method", star_in_tiers, tiers=ways.DTFL)
