"""How much noise the nodes of a run really draw.

A round is repeated under other noise. Each message of the repetition is overwritten with that of
the first time, once it is heard. So two messages of one place differ by their senders' own noises
alone, which is sqrt(2) times the deviation.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any

import numpy as np

from m2fdp.adversaries.tried_runs import Heard, TriedRun, record, replay
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.process import State
from m2fdp.core.engine.tree_process import kind_of
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import seeded

# Numbers that a deviation is measured from at least, and runs that give them at most.
_NUMBERS, _MOST_RUNS = 2_000, 24
# Of its standard error, what is granted: the chance to exceed it is 3e-7.
_ERRORS, _MOST_ERROR = 5.0, 0.9

# Under which name noise is planned, and the layer and node that draw it.
Place = tuple[str, int, int]


@dataclass(eq=False)
class DrawnNoise:
    """Noise over its planned deviation: sums of squares, and of how many numbers, by place."""

    run: TriedRun
    squares: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    numbers: Counter[Place] = field(default_factory=Counter)

    def measure(self, state: State, plan: RoundPlan, first: Sequence[Heard]) -> None:
        """Repeat the round after a state, of which `first` was heard, under other noise; and pairs
        of both, where one has few numbers."""
        run = self.run

        def process_under(key: int) -> Any:
            noise = seeded(key, f"noise of round {state.round}".encode()).noise
            draws = replace(run.simulation.randomness, noise=noise)
            return run.build(replace(run.simulation, randomness=draws))

        times = ceil(_NUMBERS / (len(state.weights) * len(run.plans)))
        for again in range(min(times, _MOST_RUNS)):
            heard = first
            if again:  # a pair of its own: differences from one run are not independent
                heard, _ = record(process_under(2 * again), state, plan)
            planned = _planned(run, state, plan, heard)

            def compare(before: Heard, now: Heard) -> None:
                what, deviations = next(planned)  # noqa: B023 - called within this turn
                apart = (now.models.double() - before.models.double()).square().sum(1).cpu().numpy()
                for row in np.flatnonzero(deviations).tolist():
                    place = what, now.layer, int(np.broadcast_to(now.nodes, len(apart))[row])
                    self.squares[place] += float(apart[row] / (2 * deviations[row] ** 2))
                    self.numbers[place] += now.models.shape[1]
                now.models.copy_(before.models)

            replay(process_under(2 * again + 1), state, plan, heard, compare)

    @property
    def error(self) -> float:
        """Of a measured deviation, relative, as far as it is granted."""
        least = min(self.numbers.values(), default=0)
        return min(_ERRORS / sqrt(2 * least), _MOST_ERROR) if least else 0.0

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
        if protection.clipping.of_models:
            local = times("local", noise.local_messages or noise.messages)
            local[1] = downs[1]
            total = [np.stack(pair, axis=1) for pair in zip(total, local, strict=True)]
        else:  # the ledger has one number for messages and broadcasts
            least = min((self.ratio(*at) for at in self.numbers if at[0] == "down"), default=1.0)
            total = [of_layer * (least if least < 1 - self.error else 1.0) for of_layer in total]
        return self.run.behind(total)

    def _of_heads(self) -> list[np.ndarray]:
        """The noise that heads add to steps: their part of the one draw of their group. A device
        that splits its model adds noise to the model's parts instead."""
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


def _planned(
    run: TriedRun, state: State, plan: RoundPlan, heard: Sequence[Heard]
) -> Iterator[tuple[str, np.ndarray]]:
    """The name of the noise in what is heard of the round after a state, place by place, and its
    deviation in a model, row by row: 0 of who does not come."""
    noise, depth = run.protection.noise, run.network.tree.depth
    scale = noise.scale(plan.step_size)
    drawn = kind_of(run.simulation, ExecutionSettings()).draw(run.simulation, plan, state)
    present, sums = drawn.present, drawn.steps
    groups = {tuple(node): at for at, node in enumerate(run.protection.lock_step.nodes.tolist())}
    steps: Counter[tuple[int, int]] = Counter()
    stretch = 0
    for now in heard:
        name, planned = now.what, np.zeros(0)
        if now.what in ("activations", "gradients"):
            yield now.what, np.full(len(now.models), planned_of_part(run, now))
            continue
        if now.what == "step":
            first = now.layer, int(now.nodes[0])
            of_nodes = [groups[now.layer, node] for node in now.nodes.tolist()]
            planned = sums[steps[first]].noise[of_nodes]
            steps[first] += 1
        elif now.what == "down":
            planned, stretch = noise.broadcasts[now.layer], stretch + 1
        elif now.what == "cloud":
            name, planned = "total", noise.messages[0]
        else:
            top = plan.stretches[stretch][2]
            name = "total" if top == 0 or noise.local_messages is None else "local"
            planned = noise.sent(top)[now.layer]
        comes = present[now.nodes] if now.layer == depth else np.ones(len(planned))
        yield name, scale * planned * comes


def planned_of_part(run: TriedRun, now: Heard) -> float:
    """The deviation that a device is to add to its activations, or to its part's gradient."""
    clients = run.protection.noise.clients
    if clients is None:
        return 0.0
    planned = clients.activations if now.what == "activations" else clients.gradients
    return float(planned[int(now.nodes[0])])
