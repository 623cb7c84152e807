"""FedYogi (Reddi et al. 2021; D A.5): FedAvg's clients, and a server that steps by moments."""

from pydantic import Field

from m2fdp.core.algorithms.base import Given, Plan
from m2fdp.core.config import Block, Decay, Positive
from m2fdp.core.engine.server_rules import Yogi
from m2fdp.tiers import ways
from m2fdp.tiers.algorithms.in_tiers import star_in_tiers
from m2fdp.tiers.ways import TierAlgorithm


class YogiOptions(Block):
    """What D leaves open of the server's steps."""

    learning_rate: Positive = Field(default=0.01, description="eta of the server.")
    beta_1: Decay = Field(default=0.9, description="Of the mean of updates.")
    beta_2: Decay = Field(default=0.99, description="Of their squares.")
    tau: Positive = Field(default=1e-3, description="What bounds a step from above.")


def _plan(given: Given) -> Plan:
    options = given.options
    rule = Yogi(**options.model_dump()) if isinstance(options, YogiOptions) else Yogi()
    return star_in_tiers(given, rule)


FEDYOGI = TierAlgorithm(
    "fedyogi", "FedYogi", "baseline", _plan, options=YogiOptions, tiers=ways.FEDAVG
)
