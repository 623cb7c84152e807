"""Rounds that add up updates instead of models.

If the senders' weights do not sum to one, a server forms theta + sum of rho_k (model_k - theta),
with the model theta that it last handed down. That is the weighed sum of models plus the missing
weight times theta. The update of a silent child is zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, build_aggregator
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.seams import Drawn
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree


@dataclass(frozen=True, eq=False)
class References:
    """The models that servers last handed down, from which updates are counted: for each layer
    l = 0…L-1 the layer that the models came from, and its models (N, M)."""

    tree: Tree
    handed: tuple[tuple[int, Tensor], ...]

    def of(self, layer: int) -> Tensor:
        """The models (N_l, M) of the servers of a layer."""
        source, models = self.handed[layer]
        if source == layer:
            return models
        ancestors = self.tree.ancestors_of(layer, source)
        return models[torch.as_tensor(ancestors, device=models.device)]

    def after(self, layer: int, models: Tensor) -> References:
        """The references after the servers of a layer have handed down their models (N_l, M)."""
        handed_down = ((layer, models),) * (len(self.handed) - layer)
        return replace(self, handed=(*self.handed[:layer], *handed_down))


class ByUpdates(Round):
    """A round whose `Drawn.weights` need not sum to one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        begun = ((0, self.drawn.model[None]),) * self.tree.depth
        self.references = References(self.tree, begun)

    @property
    def missed(self) -> frozenset[int]:
        """The layers with nodes that may stay silent."""
        return frozenset()

    def weighing(self, step: int) -> Network:
        rho = self.drawn.weights.get(step)
        if rho is None:
            return self.network
        return replace(self.network, participants=None, participation=None, rho=rho)

    def aggregator(self, step: int) -> Aggregator:
        if step not in self.drawn.weights:
            return super().aggregator(step)
        features, blocks = self.simulation.shards.features, self.means.place.blocks
        return build_aggregator(self.weighing(step), features, blocks)

    def complete(self, step: int, layer: int, sums: Tensor) -> None:
        """Add the model that was handed down times the missing weight, below zero if weights sum to
        more than one. A device that steps together with its server is not missed."""
        if step in self.drawn.weights and layer + 1 in self.missed:
            sums.addcmul_(self._lacking(step, layer + 1, sums), self.references.of(layer))

    def hand_down(self, step: int, top: int, models: Tensor) -> None:
        super().hand_down(step, top, models)
        self.references = self.references.after(top, models)

    def _lacking(self, step: int, layer: int, features: Tensor) -> Tensor:
        """The missing weight of each parent of a layer's nodes, (N_{layer-1}, 1)."""
        tree, lock_step = self.tree, self.mechanism.lock_step
        weights = self.drawn.weights[step][layer - 1]
        if layer == tree.depth:
            weights = weights * self.drawn.present
        result = 1.0 - np.bincount(tree.parents[layer - 1], weights=weights)
        head_layers = lock_step.nodes[lock_step.group_of, 0]
        result[tree.ancestors[layer - 1][head_layers < layer]] = 0.0
        return torch.as_tensor(result).to(features)[:, None]


class ByChance(ByUpdates):
    """A round that devices join by chance."""

    @classmethod
    def draw(cls, simulation: Simulation, plan: RoundPlan, state: State) -> Drawn:
        drawn = super().draw(simulation, plan, state)
        weights = among(simulation.networks[plan.network], drawn.present).weights
        return replace(drawn, weights={last: weights for _, last, _ in plan.stretches})

    @property
    def missed(self) -> frozenset[int]:
        return super().missed | {self.tree.depth}


def among(network: Network, present: np.ndarray) -> Network:
    """The network of a round of those present, bool (N_L,): with the weights that they have."""
    joining = network.participation
    if joining is None or joining.least_weight is None:
        return network
    weights = joining.weights_among(network.tree.parents[-1], present)
    return replace(network, participation=None, rho=(*network.weights[:-1], weights))


def by_chance(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation whose devices join by chance."""
    chance = any(network.participation is not None for network in simulation.networks)
    return ByChance if chance else None
