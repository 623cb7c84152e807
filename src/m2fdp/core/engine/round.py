"""A round of J Algorithm 1 on any tree, from top to bottom: `draw`, `below`, `at_cloud`.

`TreeProcess.round` calls these three, then the server rule. Learners take local steps, a stretch of
them up to each aggregation. Then models travel up to a layer, weighed, and down again; at last up
to the cloud, which adds up the sums of blocks, each of some subtrees. Algorithms differ by network,
mechanism, rules and schedule, not by code here.
"""

from functools import partial
from math import inf

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import Aggregator, summed_noise, weighed_sum
from m2fdp.core.engine.execution import Rows, stepped
from m2fdp.core.engine.learner import StepRules, Units, gradient_step, local_steps
from m2fdp.core.engine.minibatches import Minibatches, draw_participants
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.rules import is_known, refuse_too_long
from m2fdp.core.engine.seams import Drawn, Seams, Step, Stretch
from m2fdp.core.schedule.rounds import RoundPlan


class Round(Seams):
    """One round, while it is computed."""

    kinds: "tuple[type[Round], ...]" = ()  # how rooms do it their own way

    @classmethod
    def draw(cls, simulation: Simulation, plan: RoundPlan, state: State) -> Drawn:
        """Who takes part in the round after a state, and what each step adds up."""
        number, network = state.round + 1, simulation.networks[plan.network]
        present = draw_participants(network, simulation.randomness.sampling, number)
        steps = (Step(present, simulation.mechanisms[plan.network].noise.steps),) * len(plan.layers)
        return Drawn(number, plan, state.weights, state.slots.server, present, steps)

    def below(self) -> Tensor:
        """Local steps and aggregations: the blocks' parts of the cloud's sum, (n, M)."""
        drawn, heads, ranges = self.drawn, self.learners.heads, self.learners.ranges
        batches = self.minibatches()
        begun = {
            layer: Rows(drawn.model[None], np.zeros(len(of_layer), dtype=np.int64))
            for layer, of_layer in ranges.items()
        }
        starts, anchors = begun, dict(begun)
        anchored, at_once = self.rule.anchored, is_known(self.rule)
        pulled_to_first = self.plan.proximal and self.plan.center == "global"
        for first, last, top in self.plan.stretches:
            # 1. Every learner steps by itself, and what it sends is added up as it comes.
            aggregator, kept = self.aggregator(last), dict[int, list[Tensor]]()
            sums = aggregator.nothing_received(top, len(drawn.model))
            step = partial(self.step, Stretch(first, last, top, batches[first - 1 : last]))
            models_of = starts, anchors if anchored else None
            for layer, wave, models in stepped(
                self.means, ranges, drawn.before, models_of, at_once, step
            ):
                if layer > top:
                    self.receive(aggregator, sums, layer, heads[wave.start : wave.stop, 1], models)
                else:
                    kept.setdefault(layer, []).append(models.clone())
            own = {layer: torch.cat(parts) for layer, parts in kept.items()}
            # 2. Models travel up, weighed.
            arrived = self.climb(aggregator, sums, last, top)
            if last == len(self.plan.layers):
                break
            # 3. Models travel down; whoever is below starts from there.
            if top == 0:
                arrived = self.merged(last, arrived)
            self.hand_down(last, top, arrived)
            for layer, of_layer in ranges.items():
                if layer > top:
                    above = self.tree.ancestors_of(layer, top)
                    nodes = heads[of_layer.start : of_layer.stop, 1]
                    starts[layer] = Rows(arrived, above[nodes])
                    anchors[layer] = anchors[layer] if pulled_to_first else starts[layer]
                else:
                    starts[layer] = Rows(own[layer], np.arange(len(of_layer)))
        return own.get(0, arrived)  # the cloud's own where it is everybody's head

    def at_cloud(self, sums: Tensor) -> Tensor:
        """The model (1, M) that the blocks' sums (n, M) make, with the cloud's noise."""
        last, noise = len(self.plan.layers), self.mechanism.noise.messages[0]
        model = self.merged(last, sums)
        self.noise.add(last, "cloud-noise", 0, noise, model)
        return model

    def merged(self, step: int, sums: Tensor) -> Tensor:
        """The model (1, M) before the cloud's noise."""
        model = sums[:1].clone()
        weighed_sum(model, sums[1:])
        self.complete(step, 0, model)
        self.noise_sum(step, 0, model)
        return model

    def step(self, stretch: Stretch, tile: range, models: Tensor, anchors: Tensor | None) -> None:
        """Take the models (n, M) of some learners through the steps of a stretch, in place."""
        descend, noise = partial(self.descend, tile), partial(self.noise_step, stretch, tile)
        inside, longest = self.noised_inside, self.simulation.rules.longest(self.eta)
        steps = StepRules(self.rule, self.eta, self.clip, descend, noise, inside, longest)
        local_steps(steps, models, anchors, stretch.batches, stretch.first)

    def descend(self, tile: range, step: int, batches: Minibatches, models: Tensor) -> None:
        """One clipped gradient step (J eq. 6) of some learners, in place."""
        learners, units = self.learners, self.learners.units_of(tile)
        owners = Units(learners.learner_of_unit[units] - tile.start, learners.shares[units])
        of_tile = batches.select(units)
        gradient_step(self.means.backend, self.clip, self.eta, of_tile, models, owners)

    def noise_step(self, stretch: Stretch, tile: range, step: int, models: Tensor) -> None:
        """Add a local step's noise; `noise_sum` adds the last step's, where it feeds only a sum."""
        (layer, *_), nodes = self.learners.heads[tile.start : tile.stop].T
        apart = self.heard or self.noised_inside or layer <= stretch.top
        if apart or step < stretch.last:
            scales = self.drawn.steps[step - 1].noise[self.learners.groups[tile.start : tile.stop]]
            self.noise.add(step, "step-noise", int(layer), scales, models, nodes)

    def climb(self, aggregator: Aggregator, sums: dict[int, Tensor], step: int, top: int) -> Tensor:
        """The models (N_top, M) of a layer, from sums of what learners send."""
        for layer in range(self.tree.depth - 1, top, -1):
            self.complete(step, layer, sums[layer])
            self.send(step, top, layer, sums[layer])
            everyone = torch.arange(len(sums[layer]), device=sums[layer].device)
            aggregator.receive(sums, layer, everyone, sums[layer].clone())
        if top > 0:
            self.complete(step, top, sums[top])
            self.noise_sum(step, top, sums[top])
        return sums[top]

    def noise_sum(self, step: int, top: int, models: Tensor) -> None:
        """Add all noise that feeds only the sums (N_top, M), in place, as one Gaussian."""
        if self.mechanism.private:
            noise = None if self.noised_inside else self.drawn.steps[step - 1].noise
            sent = self.weighing(step), self.drawn.present
            scales = summed_noise(self.mechanism, noise, *sent, top)
            self.noise.add(step, "summed-noise", top, scales, models)

    def hand_down(self, step: int, top: int, models: Tensor) -> None:
        """Models (N_top, M) travel down; one that is too long ends training (`TooLongError`)."""
        if top == 0:
            return
        broadcast = self.mechanism.noise.broadcasts[top]
        self.noise.add(step, "downlink-noise", top, broadcast, models)
        longest = self.simulation.rules.longest_received(self.eta)
        if longest == inf or not (covered := self.mechanism.noise.covers(self.tree, top)).any():
            return
        lengths = models[torch.as_tensor(covered, device=models.device)].double().norm(dim=1)
        refuse_too_long(float(lengths.max()), longest, self.eta, "after a local aggregation")
