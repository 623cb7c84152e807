"""A simulation cut below the cloud: consecutive subtrees of layer 1, each a simulation of its own.

Local aggregations end inside a subtree, so that subtrees hear nothing of each other within a round.
What a part computes is a function of the global model and of keyed streams, in which its nodes and
records have the places that they have in the whole. The cloud adds up the messages of layer 1 block
by block, and blocks follow the tree alone, never who computes them: so the results are the same
however a simulation is cut, and wherever its parts run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from m2fdp.core.engine.learners import minibatch_law
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.simulation import Simulation
from m2fdp.core.engine.step_sums import StepSums
from m2fdp.core.privacy.mechanisms import LockStep, Noise, Protection
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree

# The subtrees whose messages are added up before others', or the devices where the cloud's children
# are devices; where there are no more, each is a block: then the messages are added as they come.
_SERVERS, _DEVICES = 16, 64


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive subtrees of layer 1 of a simulation.

    Attributes:
        simulation: networks, mechanisms and shards of the part alone.
        first: place in the whole of the part's first node of each layer l = 0…L.
        first_record: place of the part's first record among all.
        groups: int64 (g,), places of the part's lock-step groups among all.
        heads_before: {layer: how many groups of the whole have their head there, before the
            part's}; devices are heads where they do not step with others.
        devices_before: int64, the places of those devices.
        law: mean and variance of the records that each unit of the whole uses in a step.
        blocks: int64 (n_1,), for each node of layer 1, the part's block that it belongs to.
        in_blocks: whether the blocks' sums are the cloud's to add up; the whole does so itself.
    """

    simulation: Simulation
    first: tuple[int, ...]
    first_record: int
    groups: np.ndarray
    heads_before: Mapping[int, int]
    devices_before: np.ndarray
    law: tuple[np.ndarray, np.ndarray]
    blocks: np.ndarray
    in_blocks: bool = True

    @cached_property
    def devices(self) -> slice:
        """The places of the part's devices among all."""
        return slice(self.first[-1], self.first[-1] + self.simulation.networks[0].tree.n_devices)

    def of_layers(self, of_all: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """What belongs to the part's nodes, by layer."""
        n_nodes, first = self.simulation.networks[0].tree.n_nodes, self.first
        return {
            layer: values[first[layer] : first[layer] + n_nodes(layer)]
            for layer, values in of_all.items()
        }

    def of_steps(self, steps: Sequence[StepSums]) -> tuple[StepSums, ...]:
        """The part of local steps of the whole; equal ones stay one object."""
        if not self.in_blocks:
            return tuple(steps)
        cut = {
            id(step): StepSums(
                step.present[self.devices],
                step.devices[self.devices],
                self.of_layers(step.members),
                step.noise[self.groups],
            )
            for step in steps
        }
        return tuple(cut[id(step)] for step in steps)

    def learners_before(self, present: np.ndarray) -> dict[int, int]:
        """By head layer, how many learners of a round come before the part's in the whole.

        Args:
            present: bool (N_L,), the devices of the whole that take part.
        """
        # Devices that stay away are no learners.
        at_devices = {len(self.first) - 1: int(present[self.devices_before].sum())}
        return {**self.heads_before, **at_devices}


def blocks_of(tree: Tree) -> np.ndarray:
    """The block that each node of layer 1 belongs to, from 0 on: int64 (N_1,)."""
    children, size = np.arange(tree.n_nodes(1)), _DEVICES if tree.depth == 1 else _SERVERS
    return children // size if len(children) > size else children


def can_be_cut(simulation: Simulation) -> bool:
    """Whether no group of devices that steps together has its head at the cloud, and nothing that
    is sent is masked for all to take part, or sent at every step of a split model."""
    at_cloud = any((of.lock_step.nodes[:, 0] == 0).any() for of in simulation.mechanisms)
    return not (at_cloud or simulation.sums.masks or simulation.splits is not None)


def part_of(simulation: Simulation, blocks: range) -> Part:
    """The subtrees of some consecutive blocks.

    Args:
        blocks: some of `blocks_of` the tree, at least one.
    """
    network, shards = simulation.networks[0], simulation.shards
    block_of = blocks_of(network.tree)
    start, stop = np.searchsorted(block_of, [blocks.start, blocks.stop])
    spans = [range(1), *network.tree.below(1, range(int(start), int(stop)))]
    ends = np.concatenate([[0], np.cumsum(shards.sizes)])
    records = slice(int(ends[spans[-1].start]), int(ends[spans[-1].stop]))
    part = replace(
        simulation,
        networks=tuple(_cut_network(of, spans) for of in simulation.networks),
        mechanisms=tuple(_cut_mechanism(of, spans) for of in simulation.mechanisms),
        shards=_cut_shards(shards, spans[-1], records),
    )
    return _part(simulation, part, spans, records.start, block_of[start:stop] - blocks.start)


def whole_of(simulation: Simulation) -> Part:
    """All of it as one part, with the cloud."""
    tree = simulation.networks[0].tree
    spans = [range(tree.n_nodes(layer)) for layer in range(tree.depth + 1)]
    nothing = np.zeros(tree.n_nodes(1), dtype=np.int64)
    return replace(_part(simulation, simulation, spans, 0, nothing), in_blocks=False)


def _part(
    simulation: Simulation,
    part: Simulation,
    spans: Sequence[range],
    first_record: int,
    blocks: np.ndarray,
) -> Part:
    """The part with its place in a simulation."""
    lock_step = simulation.mechanisms[0].lock_step
    layers, nodes = lock_step.nodes.T
    first = np.array([span.start for span in spans])
    earlier = nodes < first[layers]
    return Part(
        part,
        tuple(first.tolist()),
        first_record,
        _groups_in(lock_step, spans),
        {int(layer): int((earlier & (layers == layer)).sum()) for layer in np.unique(layers)},
        nodes[earlier & (layers == len(first) - 1)],
        minibatch_law(simulation.mechanisms[0], simulation.shards),
        blocks,
    )


def _cut(of_layers: Sequence[np.ndarray], spans: Sequence[range]) -> tuple[np.ndarray, ...]:
    """For each layer what belongs to some of its nodes."""
    return tuple(
        of_layer[span.start : span.stop] for of_layer, span in zip(of_layers, spans, strict=True)
    )


def _cut_network(network: Network, spans: Sequence[range]) -> Network:
    tree = network.tree
    parents = tuple(
        of_layer - above.start
        for of_layer, above in zip(_cut(tree.parents, spans[1:]), spans[:-1], strict=True)
    )
    names = tuple(
        of_layer[span.start : span.stop] for of_layer, span in zip(tree.names, spans, strict=True)
    )
    devices = slice(spans[-1].start, spans[-1].stop)
    return replace(
        network,
        tree=Tree(parents, names),
        trust=_cut(network.trust, spans[:-1]),
        noise=_cut(network.noise, spans),
        # Who takes part is drawn of the whole; these are weights in the whole, too.
        participants=None,
        participation=None,
        rho=_cut(network.weights, spans[1:]),
        splits=None if network.splits is None else network.splits[devices],
    )


def _groups_in(lock_step: LockStep, spans: Sequence[range]) -> np.ndarray:
    layers, nodes = lock_step.nodes.T
    starts, stops = np.array([(span.start, span.stop) for span in spans]).T
    return np.flatnonzero((nodes >= starts[layers]) & (nodes < stops[layers]))


def _cut_mechanism(mechanism: Protection, spans: Sequence[range]) -> Protection:
    lock_step, noise = mechanism.lock_step, mechanism.noise
    groups = _groups_in(lock_step, spans)
    devices = slice(spans[-1].start, spans[-1].stop)
    nodes = lock_step.nodes[groups]
    nodes[:, 1] -= np.array([span.start for span in spans])[nodes[:, 0]]
    group_of = np.searchsorted(groups, lock_step.group_of[devices])
    local = noise.local_messages
    return Protection(
        mechanism.clipping,
        LockStep(nodes, group_of, lock_step.weights[devices]),
        Noise(
            noise.steps[groups],
            _cut(noise.heads, spans),
            _cut(noise.messages, spans),
            _cut(noise.broadcasts, spans[:-1]),
            None if local is None else _cut(local, spans),
            noise.unit,
            noise.past,
        ),
        mechanism.private,
    )


def _cut_shards(shards: Shards, devices: range, records: slice) -> Shards:
    of_devices = slice(devices.start, devices.stop)
    return Shards(
        shards.features[records],
        shards.labels[records],
        shards.sizes[of_devices],
        shards.rates[of_devices],
        None if shards.nominal is None else shards.nominal[of_devices],
    )
