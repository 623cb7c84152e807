"""How much noise the nodes of a run really draw.

A round is repeated under other noise. What is heard of it is overwritten, place by place, with what
was heard the first time, so that of each message no more is left than what its sender adds itself.
The two differ by sqrt(2) times its deviation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt

import numpy as np

from m2fdp.adversaries.listening import Heard, replay
from m2fdp.adversaries.tried_runs import TriedRun
from m2fdp.privacy.ledger import Ledger
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.process import State
from m2fdp.simulation.step_sums import step_sums
from m2fdp.streams import seeded

# Numbers that a deviation is measured from at least, and runs that give them at most.
_NUMBERS, _MOST_RUNS = 2_000, 24
# Of its standard error, what is granted: the chance to exceed it is 3e-7.
_ERRORS = 5.0

# Under which name noise is planned, and the layer and node that draw it.
Place = tuple[str, int, int]


@dataclass(eq=False)
class DrawnNoise:
    """Noise over its planned deviation.

    Attributes:
        squares, numbers: of it, by place.
    """

    run: TriedRun
    squares: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    numbers: Counter[Place] = field(default_factory=Counter)

    def measure(self, state: State, plan: RoundPlan, first: Sequence[Heard]) -> None:
        """Repeat a round under other noise.

        Args:
            first: what was heard of it.
        """
        run = self.run
        times = ceil(_NUMBERS / (len(state.weights) * len(run.plans)))
        for again in range(min(times, _MOST_RUNS)):
            other = seeded(again, f"noise of round {state.round}".encode()).noise
            draws = replace(run.simulation.randomness, noise=other)
            process = run.build(replace(run.simulation, randomness=draws))
            compare = _Comparison(self, process, state.round + 1, plan).compare
            replay(process, state, plan, first, compare)

    @property
    def error(self) -> float:
        """Of a measured deviation, relative, as far as it is granted."""
        least = min(self.numbers.values(), default=0)
        return _ERRORS / sqrt(2 * least) if least else 0.0

    def ratio(self, what: str, layer: int, node: int) -> float:
        """Of a node's noise to what was planned; 1 where nothing was, or it did not come."""
        place = what, layer, node
        return sqrt(self.squares[place] / self.numbers[place]) if self.numbers[place] else 1.0

    def ledger(self) -> Ledger:
        """The run's, of the noise that was drawn."""
        protection = self.run.protection
        noise = protection.noise
        if noise.in_steps:
            return self.run.behind(self._of_heads())

        def times(what: str, planned: Sequence[np.ndarray]) -> list[np.ndarray]:
            return [
                of_layer * [self.ratio(what, layer, node) for node in range(len(of_layer))]
                for layer, of_layer in enumerate(planned)
            ]

        total, downs = times("total", noise.messages), times("down", noise.broadcasts)
        if not protection.clipping.of_models:
            return self.run.behind(self._as_little_down(total))
        local = times("local", noise.local_messages or noise.messages)
        local[1] = downs[1]
        return self.run.behind([np.stack(pair, axis=1) for pair in zip(total, local, strict=True)])

    def _as_little_down(self, total: list[np.ndarray]) -> list[np.ndarray]:
        """The messages' noise, or as little as there is in a broadcast: the ledger has one number
        for both."""
        broadcasts = enumerate(self.run.protection.noise.broadcasts)
        ratios = [
            self.ratio("down", layer, node)
            for layer, of_layer in broadcasts
            for node in np.flatnonzero(of_layer).tolist()
        ]
        least = min(ratios, default=1.0)
        return [of_layer * (least if least < 1 - self.error else 1.0) for of_layer in total]

    def _of_heads(self) -> list[np.ndarray]:
        """What heads add to steps: their part of the noise of their lock-step group, which is drawn
        as one; or of what a device adds to the parts of a split model."""
        protection, tree = self.run.protection, self.run.network.tree
        result = [of_layer.copy() for of_layer in protection.noise.heads]
        lock_step = protection.lock_step
        for number, (layer, node) in enumerate(lock_step.nodes.tolist()):
            ways = ("gradients", "activations") if layer == tree.depth else ()
            ratio = min(self.ratio(what, layer, node) for what in ("step", *ways))
            devices = np.flatnonzero(lock_step.group_of == number)
            for at in range(layer, tree.depth + 1):
                result[at][np.unique(tree.ancestors[at][devices])] *= ratio
        return result


@dataclass(eq=False)
class _Comparison:
    """Of a round with itself under other noise.

    Attributes:
        steps: how often steps of some nodes were heard.
        stretch: how many local aggregations were.
    """

    drawn: DrawnNoise
    process: object
    number: int
    plan: RoundPlan
    steps: Counter[Place] = field(default_factory=Counter)
    stretch: int = 0

    def compare(self, before: Heard, now: Heard) -> None:
        """Count what each node adds, and go on without it."""
        run = self.drawn.run
        apart = (now.models.double() - before.models.double()).square().sum(1).tolist()
        what, planned = self._planned(now)
        present, depth = run.present(self.number), run.network.tree.depth
        for row, node in enumerate(np.broadcast_to(now.nodes, len(apart)).tolist()):
            comes = now.layer < depth or present[node]
            if comes and planned[row]:
                place = what, now.layer, node
                self.drawn.squares[place] += apart[row] / (2 * planned[row] ** 2)
                self.drawn.numbers[place] += now.models.shape[1]
        self.stretch += now.what == "down"
        now.models.copy_(before.models)

    def _planned(self, now: Heard) -> tuple[str, np.ndarray]:
        """The name of noise, and how large it is to be, row by row, in a model."""
        noise = self.drawn.run.protection.noise
        scale = noise.scale(self.plan.step_size)
        if now.what == "step":
            return "step", scale * self._of_step(now)
        if now.what in ("activations", "gradients"):
            return now.what, np.full(len(now.models), planned_of_part(self.drawn.run, now))
        if now.what == "down":
            return "down", scale * noise.broadcasts[now.layer]
        if now.what == "cloud":
            return "total", scale * noise.messages[0]
        top = self.plan.stretches[self.stretch][2]
        name = "total" if top == 0 or noise.local_messages is None else "local"
        return name, scale * noise.sent(top)[now.layer]

    def _of_step(self, now: Heard) -> np.ndarray:
        """Of learners' steps: with what is left of earlier ones' noise, if anything is."""
        run, plan = self.drawn.run, self.plan
        noise = run.protection.noise
        first = "step", now.layer, int(now.nodes[0])
        self.steps[first] += 1
        step = self.steps[first]
        sums = step_sums(run.simulation, plan, run.present(self.number), self.number)[step - 1]
        of_node = {
            tuple(node): at for at, node in enumerate(run.protection.lock_step.nodes.tolist())
        }
        groups = [of_node[now.layer, node] for node in now.nodes.tolist()]
        earlier = (self.number - 1) * len(plan.layers) + step - 1
        past = sum(part**2 for part in noise.past[:earlier])
        own = np.zeros(len(groups))
        if noise.clients is not None and now.layer == run.network.tree.depth:
            own = noise.clients.gradients[now.nodes]
        # What a device adds to a whole model that it splits with nobody is heard here alone; else
        # it is the same, and was heard where it was sent.
        return np.where(own > 0, 0.0, sums.noise[groups] * sqrt(1 + past))


def planned_of_part(run: TriedRun, now: Heard) -> float:
    """The deviation that a device is to add to its activations, or to its part's gradient."""
    clients = run.protection.noise.clients
    if clients is None:
        return 0.0
    (device,) = now.nodes.tolist()
    planned = clients.activations if now.what == "activations" else clients.gradients
    return float(planned[device]) * now.times
