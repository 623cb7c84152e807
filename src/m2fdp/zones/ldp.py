"""LDP (H Sec. V, C1): no server is trusted, so every device adds noise; HFL-DP by H's name."""

from m2fdp.core.algorithms.base import Algorithm
from m2fdp.core.algorithms.hfl_dp import HFL_DP

LDP = Algorithm("ldp", "LDP", "baseline", HFL_DP.plan, in_zones=True)
