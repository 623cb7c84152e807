"""FedGKT (He et al. 2020; D A.5): clients' small models and a server's large one teach each other.

Clients send activations, scores and labels, and never a model: see `m2fdp.tiers.transfer`.
"""

from m2fdp.tiers import ways
from m2fdp.tiers.algorithms.in_tiers import star_in_tiers
from m2fdp.tiers.ways import TierAlgorithm

FEDGKT = TierAlgorithm("fedgkt", "FedGKT", "baseline", star_in_tiers, tiers=ways.FEDGKT)
