"""Energy and delay of a round (J Sec. V-B, VI-A); no clock on the wall is ever read.

A message's delay is its bits over the rate of its link and its energy power times delay. Only
uplinks count. Links into the cloud are wired, all others wireless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.costs.config import ResourcesConfig

# For layer l = 1…L (index l-1), float64 (N_l,).
Bits = tuple[np.ndarray, ...]


class Cost(NamedTuple):
    """Energy in joules and delay in seconds."""

    energy_j: float
    delay_s: float

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(self.energy_j + other.energy_j, self.delay_s + other.delay_s)


def totals(costs: Sequence[Cost]) -> list[Cost]:
    """What rounds have cost together after each of t = 1…T. Where all cost the same these are
    multiples, so that rounding does not add up."""
    if len(set(costs)) == 1:
        (each,) = set(costs)
        return [Cost(t * each.energy_j, t * each.delay_s) for t in range(1, len(costs) + 1)]
    return list(accumulate(costs))


def message_bits(network: Network, n_parameters: int, config: ResourcesConfig) -> Bits:
    """Of every node's message, with what it hands on of others'."""
    tree, plain = network.tree, float(n_parameters * config.bits_per_parameter)
    bits = tuple(np.full(tree.n_nodes(layer), plain) for layer in range(1, tree.depth + 1))
    for with_more in brought("sent"):
        bits = with_more(network, n_parameters, bits)
    return bits


def watts(dbm: float) -> float:
    """Power in watts from dBm: 30 dBm are 1 W."""
    return 10 ** ((dbm - 30) / 10)


def link_cost(layer: int, bits: float, config: ResourcesConfig) -> Cost:
    """Cost of so many bits sent by a node of layer l = 1…L to its parent."""
    wired = layer == 1
    power_dbm = config.wired_power_dbm if wired else config.wireless_power_dbm
    rate_mbps = config.wired_rate_mbps if wired else config.wireless_rate_mbps
    delay = bits / (rate_mbps * 1e6)
    return Cost(watts(power_dbm) * delay, delay)


@dataclass(frozen=True, eq=False)
class Links:
    """Messages over links. In a lock-step group every device's gradient travels to the group's head
    at every local step; the head has the group's model already, so an aggregation starts there.

    Attributes:
        n_parameters: M.
        reports: vectors that learners send up beside a model at a round's end.
    """

    network: Network
    lock_step: LockStep
    n_parameters: int
    config: ResourcesConfig
    reports: int = 0

    def round(self, layers: Sequence[int | None]) -> Cost:
        """Cost of one round: what precedes its steps, local steps, gradients, aggregations.

        A step ends when its slowest group has. Where devices join by chance these are the costs of
        the expected numbers: for energy its expectation, for delay a little less.

        Args:
            layers: those of a `RoundPlan`: up to which models travel after each local step.
        """
        network, config, present = self.network, self.config, _present(self.network)
        spent = Cost(
            len(layers) * present.sum() * config.step_energy_j, len(layers) * config.step_delay_s
        )
        for bits_of in brought("before_steps"):
            if (bits := bits_of(network)) is not None:
                energy, delays = self.hop(network.tree.depth, present, bits)
                spent += Cost(energy, float(delays.max()))
        return sum(self._journeys(layers, present), spent)

    def servers(self, layers: Sequence[int | None]) -> Cost:
        """Of `round` what servers send: their own messages up, without devices' and their steps."""
        return sum(self._journeys(layers, np.zeros(self.network.tree.n_devices)), Cost(0.0, 0.0))

    def _journeys(self, layers: Sequence[int | None], present: np.ndarray) -> Iterator[Cost]:
        """What is sent after each local step."""
        bits, longer = (
            message_bits(self.network, self.n_parameters * vectors, self.config)
            for vectors in (1, 1 + self.reports)
        )
        # What is sent inside a lock-step group is a gradient, whatever its head reports.
        last = tuple(map(np.where, self._inside_groups, bits, longer))
        for top in layers:
            *servers, devices = self.senders(top)
            yield self.journey((*servers, devices * present), last if top == 0 else bits)

    def senders(self, top: int | None) -> list[np.ndarray]:
        """For layer l = 1…L, bool (N_l,): which nodes send a message up after a local step that
        ends at a layer, or at none."""
        return [
            mask | (top is not None and layer > top)
            for layer, mask in enumerate(self._inside_groups, start=1)
        ]

    @cached_property
    def _inside_groups(self) -> tuple[np.ndarray, ...]:
        """For layer l = 1…L, bool (N_l,): is the node below the head of a lock-step group."""
        tree, head_layer = self.network.tree, self.lock_step.nodes[self.lock_step.group_of, 0]
        masks = tuple(np.zeros(tree.n_nodes(layer), bool) for layer in range(1, tree.depth + 1))
        for layer, mask in enumerate(masks, start=1):
            mask[tree.ancestors[layer][head_layer < layer]] = True
        return masks

    def journey(self, sending: Sequence[np.ndarray], bits: Bits) -> Cost:
        """The messages of the sending nodes of layer l = 1…L, from the devices up; `sending` is
        whether each does, or how often.

        A parent sends on when the last of its children has arrived; siblings transmit in turn or
        at once, and different parents receive side by side.
        """
        tree = self.network.tree
        energy, delay, ready = 0.0, 0.0, np.zeros(tree.n_devices)
        for layer in range(tree.depth, 0, -1):
            senders = np.flatnonzero(sending[layer - 1])
            joules, delays = self.hop(layer, sending[layer - 1], bits[layer - 1])
            energy += joules
            arrived = np.zeros(tree.n_nodes(layer - 1))
            np.maximum.at(arrived, tree.parents[layer - 1][senders], ready[senders])
            ready = arrived + delays
            delay = max(delay, float(ready.max()))
        return Cost(float(energy), delay)

    def hop(self, layer: int, sending: np.ndarray, bits: np.ndarray) -> tuple[float, np.ndarray]:
        """What the nodes of a layer send to the next, of so many bits (N_l,) each; `sending` (N_l,)
        is whether each does, or how often. Joules of all, and of each parent the seconds until the
        last of its children's messages is there, float64 (N_{l-1},)."""
        tree = self.network.tree
        senders = np.flatnonzero(sending)
        parents, n_parents = tree.parents[layer - 1][senders], tree.n_nodes(layer - 1)
        energy, delays = 0.0, np.zeros(n_parents)
        for size in np.unique(bits[senders]):
            cost, equal = link_cost(layer, float(size), self.config), bits[senders] == size
            counts = sending[senders[equal]].astype(np.float64)
            messages = np.bincount(parents[equal], weights=counts, minlength=n_parents)
            energy += cost.energy_j * counts.sum()
            if self.config.uplinks == "sequential":
                delays += messages * cost.delay_s
            else:
                delays = np.maximum(delays, np.minimum(messages, 1) * cost.delay_s)
        return energy, delays


def round_costs(
    links: Sequence[Links],
    plans: Sequence[RoundPlan],
    cost: Callable[[Links, Sequence[int | None]], Cost] = Links.round,
) -> list[Cost]:
    """What each round costs over the links of its network; `cost` is of one round."""
    of_layers = cache(lambda network, layers: cost(links[network], layers))
    return [of_layers(plan.network, plan.layers) for plan in plans]


def _present(network: Network) -> np.ndarray:
    """Who takes part, or how often each does: (N_L,)."""
    if network.chance is not None:
        return network.odds
    # Which devices take part changes, how many does not: let it be the first ones.
    return network.tree.sibling_rank() < network.present[network.tree.parents[-1]]
