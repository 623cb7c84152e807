"""What secure aggregation asks of a network, and what its members' noise shrinks to."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np

from m2fdp.core.algorithms.base import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.topology.network import Network, SecureSums, heads_of, readers
from m2fdp.secure_aggregation.config import SecureAggregationConfig

_BLOCK = "secure_aggregation"


def with_secure_sums(plan: Plan, config: Config) -> Plan:
    """The plan under the configured secure aggregation, its heads with their parts of shared noise;
    an `InputError` for layers that are none, or groups or thresholds that hide nothing."""
    if not config.secure_aggregation.layers:
        return plan
    sums, colluding = secure_sums(config.secure_aggregation), config.threat.colluding
    network = replace(plan.network, sums=sums)
    _check_layers(network, plan.schedule.local_aggregation)
    for layer in sorted(sums.layers):
        _check_groups(network, layer, colluding)
    if sums.shared and plan.private:
        network = _shared(network, colluding)
    return replace(plan, network=network)


def _check_layers(network: Network, local_aggregation: Collection[int]) -> None:
    sums, depth = network.sums, network.tree.depth
    for layer in sorted(sums.layers):
        if layer > depth:
            problem = f"is no layer of senders in this tree; valid: 1 to {depth}"
            raise InputError(f"{_BLOCK}.layers", layer, problem)
    refuse = partial(InputError, f"{_BLOCK}.decode", "cloud")
    if sums.decode == "cloud" and len(sums.layers) > 1:
        several = f"not of the {len(sums.layers)} of {_BLOCK}.layers"
        raise refuse(f"reads one sum of one layer, {several}")
    if sums.decode == "cloud" and local_aggregation:
        raise refuse(
            f"leaves servers nothing that they can read, so nothing to aggregate at layer "
            f"{min(local_aggregation)} (training.local_aggregation); use null there"
        )


def _check_groups(network: Network, layer: int, colluding: int) -> None:
    """Every sum has at least two terms, and a threshold that is a majority without colluders."""
    sums, tree, sizes = network.sums, network.tree, network.group_sizes(layer)
    thresholds, threshold = sums.least_members(sizes), sums.threshold
    said = threshold if threshold is not None else "null"
    halves = "is not above half of the {n} below {reader}: two halves could each be read"
    above = "must be above threat.colluding = {colluding} of the {n} below {reader}: here it is "
    for wrong, key, value, text in (
        (sizes < 2, "layers", layer, "adds up {n} message below {reader}, which hides nothing"),
        (2 * thresholds <= sizes, "threshold", threshold, halves),
        (thresholds > sizes, "threshold", threshold, "is more than the {n} below {reader}"),
        (thresholds <= colluding, "threshold", said, above + "{threshold}"),
    ):
        nodes = np.flatnonzero(wrong)
        if nodes.size:
            node = int(nodes[0])
            top = sums.reader_layer(layer)
            details = {
                "n": sizes[node],
                "reader": tree.names[top][readers(tree, sums, layer)[node]],
                "colluding": colluding,
                "threshold": thresholds[node],
            }
            raise InputError(f"{_BLOCK}.{key}", value, text.format(**details))


def _shared(network: Network, colluding: int) -> Network:
    """Each head adds 1/sqrt(n) of its noise where at least n honest heads are in every sum.

    In units of one full noise the sum holds 1 (H Sec. IV-A with specs of Bonawitz et al. 2017:
    t survivors, of whom colluders tell theirs). An elected super-node that reads the sum is one of
    those who add noise, and knows its own.
    """
    tree, sums = network.tree, network.sums
    refuse = partial(InputError, f"{_BLOCK}.noise", "shared")
    heads = heads_of(network)
    noise = [of_layer.copy() for of_layer in network.noise]
    shares = False
    for layer in sorted(sums.layers):
        nodes = np.unique(heads[heads[:, 0] == layer, 1])
        nodes = nodes[noise[layer][nodes] > 0]
        if not nodes.size:
            continue
        shares = True
        of_node = readers(tree, sums, layer)
        sizes = network.group_sizes(layer)
        n_absent = sizes - sums.fewest(layer, sizes, colluding)
        # Where not all take part, those who do are as many heads as all the group's are alike.
        present = sizes / np.bincount(of_node)[of_node]
        adding = np.bincount(of_node[nodes], minlength=of_node.max() + 1)[of_node] * present
        by_member = int(network.read_by_member(layer))
        certain = np.floor(adding + 1e-9) - n_absent - colluding - by_member
        unsure = nodes[certain[nodes] < 1]
        if unsure.size:
            reader = tree.names[sums.reader_layer(layer)][of_node[unsure[0]]]
            raise refuse(
                f"leaves no honest noise in a sum that {reader} reads: of "
                f"{int(adding[unsure[0]])} who add noise {int(n_absent[unsure[0]])} may be missing "
                f"and {colluding} collude (threat.colluding)"
                + (", and the elected super-node reads it" if by_member else "")
            )
        noise[layer][nodes] /= np.sqrt(certain[nodes])
    if not shares:
        raise refuse(
            f"finds no noise to share: nobody at {_BLOCK}.layers {sorted(sums.layers)} protects "
            "devices by adding some; use the layer of those who do, or separate"
        )
    return replace(network, noise=tuple(noise))


def secure_sums(config: SecureAggregationConfig) -> SecureSums:
    """Which messages are read as sums, as configured."""
    layers, shared = frozenset(config.layers), config.noise == "shared"
    return SecureSums(layers, config.decode, shared, config.threshold, config.dropout)
