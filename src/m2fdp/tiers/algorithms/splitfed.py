"""SplitFed (D A.5): clients train md1 and md2, and wait in every batch for the server's gradient.

The gradients are those of the whole model, so it trains what FedAvg trains, to the byte; only its
clock differs.
"""

from m2fdp.tiers import ways
from m2fdp.tiers.algorithms.in_tiers import star_in_tiers
from m2fdp.tiers.ways import TierAlgorithm

SPLITFED = TierAlgorithm("splitfed", "SplitFed", "baseline", star_in_tiers, tiers=ways.SPLITFED)
