"""A simulation cut below the cloud: consecutive subtrees of layer 1, each a simulation of its own.

Local aggregations end inside a subtree, so that subtrees hear nothing of each other within a round.
What a part computes is a function of the global model and of keyed streams, in which its nodes and
records have the places that they have in the whole. The cloud adds up the messages of layer 1 block
by block, and blocks follow the tree alone, never who computes them: so the results are the same
however a simulation is cut, and wherever its parts run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from m2fdp.core.engine.execution import Place
from m2fdp.core.engine.minibatches import Shards, minibatch_law
from m2fdp.core.engine.process import Simulation
from m2fdp.core.engine.seams import Drawn, Step
from m2fdp.core.engine.tree_process import blocks_of
from m2fdp.core.privacy.mechanisms import LockStep, Noise, Protection
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive subtrees of layer 1 of a simulation."""

    simulation: Simulation  # networks, mechanisms and shards of the part alone
    place: Place  # where it stands in the whole
    groups: np.ndarray  # int64 (g,), places of the part's lock-step groups among all
    # {layer: how many groups of the whole have their head there, before the part's}; devices
    # are heads where they do not step with others
    heads_before: Mapping[int, int]
    devices_before: np.ndarray  # int64, the places of those devices

    def of(self, drawn: Drawn) -> Drawn:
        """What is drawn of a round, as far as it is about the part."""
        tree, first = self.simulation.networks[0].tree, self.place.first
        spans = [slice(at, at + tree.n_nodes(layer)) for layer, at in enumerate(first)]
        # Steps that are equal stay one object.
        steps = {
            id(step): Step(
                step.devices[spans[-1]],
                step.noise[self.groups],
                {layer: of_all[spans[layer]] for layer, of_all in step.members.items()},
            )
            for step in drawn.steps
        }
        # Devices that stay away are no learners.
        devices = {tree.depth: int(drawn.present[self.devices_before].sum())}
        return replace(
            drawn,
            present=drawn.present[spans[-1]],
            steps=tuple(steps[id(step)] for step in drawn.steps),
            weights={step: _cut(of_layers, spans[1:]) for step, of_layers in drawn.weights.items()},
            before={**self.heads_before, **devices},
        )


def part_of(simulation: Simulation, blocks: range) -> Part:
    """The subtrees of some consecutive blocks."""
    network, shards = simulation.networks[0], simulation.shards
    block_of = blocks_of(network.tree)
    start, stop = np.searchsorted(block_of, [blocks.start, blocks.stop])
    nodes_of = [range(1), *network.tree.below(1, range(int(start), int(stop)))]
    spans = [slice(nodes.start, nodes.stop) for nodes in nodes_of]
    ends = np.concatenate([[0], np.cumsum(shards.sizes)])
    records, devices = slice(*ends[[spans[-1].start, spans[-1].stop]].tolist()), spans[-1]
    part = replace(
        simulation,
        networks=tuple(_cut_network(of, spans) for of in simulation.networks),
        mechanisms=tuple(_cut_mechanism(of, spans) for of in simulation.mechanisms),
        shards=Shards(
            shards.features[records],
            shards.labels[records],
            shards.sizes[devices],
            shards.rates[devices],
            None if shards.nominal is None else shards.nominal[devices],
        ),
    )
    lock_step = simulation.mechanisms[0].lock_step
    layers, nodes = lock_step.nodes.T
    first = np.array([span.start for span in spans])
    earlier = nodes < first[layers]
    law = minibatch_law(simulation.mechanisms[0], shards)
    return Part(
        part,
        Place(tuple(first.tolist()), block_of[start:stop] - blocks.start, law, records.start),
        _groups_in(lock_step, spans),
        {int(layer): int((earlier & (layers == layer)).sum()) for layer in np.unique(layers)},
        nodes[earlier & (layers == network.tree.depth)],
    )


def _cut(of_layers: Sequence[Any], spans: Sequence[slice]) -> tuple[Any, ...]:
    """For each layer what belongs to some of its nodes."""
    return tuple(of_layer[span] for of_layer, span in zip(of_layers, spans, strict=True))


def _cut_network(network: Network, spans: Sequence[slice]) -> Network:
    tree = network.tree
    parents = tuple(
        of_layer - above.start
        for of_layer, above in zip(_cut(tree.parents, spans[1:]), spans[:-1], strict=True)
    )
    return replace(
        network,
        tree=Tree(parents, _cut(tree.names, spans)),
        trust=_cut(network.trust, spans[:-1]),
        noise=_cut(network.noise, spans),
        # Who takes part is drawn of the whole; these are weights in the whole, too.
        participants=None,
        participation=None,
        rho=_cut(network.weights, spans[1:]),
        splits=None if network.splits is None else network.splits[spans[-1]],
    )


def _groups_in(lock_step: LockStep, spans: Sequence[slice]) -> np.ndarray:
    layers, nodes = lock_step.nodes.T
    starts, stops = np.array([(span.start, span.stop) for span in spans]).T
    return np.flatnonzero((nodes >= starts[layers]) & (nodes < stops[layers]))


def _cut_mechanism(mechanism: Protection, spans: Sequence[slice]) -> Protection:
    lock_step, noise = mechanism.lock_step, mechanism.noise
    groups, devices = _groups_in(lock_step, spans), spans[-1]
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
        ),
        mechanism.private,
    )
