"""The algorithms that train split models: D's, on a star without noise, and M²FDP in tiers."""

from dataclasses import replace

import numpy as np
from pydantic import Field

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.blocks import Block, Decay, Positive
from m2fdp.core.engine.rules import Rules, ServerRule, TakeAggregate, Yogi
from m2fdp.core.topology.builders import star
from m2fdp.core.topology.network import Network, no_noise, noise_plan
from m2fdp.core.topology.trust import all_untrusted
from m2fdp.tiers import ways
from m2fdp.tiers.ways import TierAlgorithm


def star_in_tiers(given: Given, server: ServerRule | None = None) -> Plan:
    """The same devices below one server, which hosts what they do not train themselves.

    Args:
        server: what it makes of an aggregate; the aggregate itself, unless given.
    """
    flat = star(given.tree)
    network = Network(flat, all_untrusted(flat), no_noise(flat))
    # What a device does in its epochs is nobody's local step: models travel once a round.
    schedule = replace(given.schedule, local_steps=1, local_aggregation={})
    return Plan(network, schedule, private=False, rules=Rules(server=server or TakeAggregate()))


class YogiOptions(Block):
    """What D leaves open of the server's steps."""

    learning_rate: Positive = Field(default=0.01, description="eta of the server.")
    beta_1: Decay = Field(default=0.9, description="Of the mean of updates.")
    beta_2: Decay = Field(default=0.99, description="Of their squares.")
    tau: Positive = Field(default=1e-3, description="What bounds a step from above.")


def _yogi(given: Given) -> Plan:
    options = given.options
    rule = Yogi(**options.model_dump()) if isinstance(options, YogiOptions) else Yogi()
    return star_in_tiers(given, rule)


def _tree_in_tiers(given: Given) -> Plan:
    """Activations, labels and gradients stay with trusted servers, and noise is where M²FDP has it:
    the ledger is M²FDP's. `offload_to: anyone` lets the others split too, who noise what they send.
    """
    tree, trust = given.tree, given.trust
    splits = trust[-1][tree.parents[-1]].copy()
    if given.config.tiering.offload_to == "anyone":
        splits = np.ones_like(splits)
    network = Network(tree, trust, noise_plan(tree, trust), splits=splits)
    return Plan(network, given.schedule, private=True)


# Every client trains the whole model.
FEDAVG = TierAlgorithm("fedavg", "FedAvg", "baseline", star_in_tiers, tiers=ways.FEDAVG)
# Gradients are those of the whole model: FedAvg's results to the byte, by another clock (D A.5).
SPLITFED = TierAlgorithm("splitfed", "SplitFed", "baseline", star_in_tiers, tiers=ways.SPLITFED)
# FedAvg's clients, and a server that steps by moments (Reddi et al. 2021; D A.5).
FEDYOGI = TierAlgorithm(
    "fedyogi", "FedYogi", "baseline", _yogi, options=YogiOptions, tiers=ways.FEDAVG
)
# D: clients train the beginning of a model, a server the rest, in tiers by their speed.
DTFL = TierAlgorithm("dtfl", "DTFL", "method", star_in_tiers, tiers=ways.DTFL)
M2FDP_TIERS = Algorithm("m2fdp_tiers", "M²FDP in tiers", "method", _tree_in_tiers)
# See `m2fdp.tiers.transfer`.
FEDGKT = TierAlgorithm("fedgkt", "FedGKT", "baseline", star_in_tiers, tiers=ways.FEDGKT)
