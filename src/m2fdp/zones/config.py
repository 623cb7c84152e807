"""What zones read: who their super-nodes are, and who adds noise in H's mixed algorithm."""

from collections.abc import Callable
from typing import Any, Literal

from m2fdp.core.blocks import READ_BY, SINCE, Block, Probability, key

# Who reads it.
ZONED = "algorithm: hdp_mixed"
READERS: dict[str, Callable[[Any], bool]] = {
    ZONED: lambda run: getattr(run.algorithm, "zoned", False)
}


class SuperNodesConfig(Block):
    """Who the super-nodes, the lowest servers, are (H Sec. IV-A)."""

    kind: Literal["fixed", "elected"] = "fixed"
    """Servers of their own (fixed), or in every round one of the zone's devices (elected). Of m
    devices at most (m - 1)/3 may then collude."""


class ElectedConfig(Block):
    """What `topology` says of zones."""

    super_nodes: SuperNodesConfig = key(SuperNodesConfig(), since="0.3.0")


class ZonesConfig(Block):
    """Who adds noise in `algorithm: hdp_mixed`: the cases C1 to C7 of H Sec. V."""

    marks = {SINCE: "0.3.0", READ_BY: ZONED}

    device_noise: Probability = 0.5
    """The share of zones, or of every zone's devices, where devices add noise."""
    device_noise_of: Literal["zones", "devices"] = "zones"
    """What `device_noise` is a share of."""
    server_noise: Probability = 0.5
    """The share of zones whose super-node adds noise (beta of C6, alpha of C7)."""
    cloud_noise: bool = False
    """Whether the cloud, then trusted, adds noise (C4 to C7)."""
    both_layers: bool = False
    """Super-nodes of zones whose devices add noise add some too (note on C3)."""
