"""FedAvg as D runs it: every client trains the whole model, and models are averaged."""

from m2fdp.algorithms.base import Algorithm
from m2fdp.algorithms.in_tiers import star_in_tiers
from m2fdp.tiering import ways

FEDAVG = Algorithm("fedavg", "FedAvg", "baseline", star_in_tiers, tiers=ways.FEDAVG)
