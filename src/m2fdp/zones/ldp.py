"""LDP (H Sec. V, C1): no server is trusted, so every device adds noise; HFL-DP by H's name."""

from m2fdp.core.algorithms.hfl_dp import HFL_DP
from m2fdp.zones.algorithm import ZoneAlgorithm

LDP = ZoneAlgorithm("ldp", "LDP", "baseline", HFL_DP.plan)
