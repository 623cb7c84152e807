"""FedAvg as D runs it: every client trains the whole model, and models are averaged."""

from m2fdp.tiers import ways
from m2fdp.tiers.algorithms.in_tiers import star_in_tiers
from m2fdp.tiers.ways import TierAlgorithm

FEDAVG = TierAlgorithm("fedavg", "FedAvg", "baseline", star_in_tiers, tiers=ways.FEDAVG)
