"""FedGKT (He et al. 2020; D A.5): clients' small models and a server's large one teach each other.

Clients send activations, scores and labels, and never a model: see `m2fdp.tiering.transfer`.
"""

from m2fdp.algorithms.base import Algorithm
from m2fdp.algorithms.in_tiers import star_in_tiers
from m2fdp.tiering import ways

FEDGKT = Algorithm("fedgkt", "FedGKT", "baseline", star_in_tiers, tiers=ways.FEDGKT)
