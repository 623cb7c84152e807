"""The differential test: two runs that differ in one record, or one device, and in nothing else.

Minibatches, participants and noise are drawn alike in both, so that noise drops out of the
difference of two messages, and what is left is how far the neighbour moves them. Two gradients
taken at different models differ, and composition allows that: what is released later may depend on
what was released before. So the second run goes on with the first one's release wherever one has
been compared, as the observer saw it. From then on the two must be equal, whatever is sent, until
records enter again; below the head, where no observer reads, they may part.

How large the noise is, is measured, not believed: the first run is repeated under another key. The
ledger is then built anew from the deviations that were really drawn, so that every observer's line
counts the noise that it can't subtract. A line holds if

    largest shift found / noise drawn <= largest shift allowed / noise credited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isfinite, sqrt
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.config import PrivacyConfig
from m2fdp.errors import InputError
from m2fdp.privacy.ledger import Ledger
from m2fdp.privacy.mechanisms import Protection, get_mechanism
from m2fdp.privacy.positions import Position, position_name
from m2fdp.privacy.releases import Release
from m2fdp.privacy.taint import windows
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.lengths import TooLongError
from m2fdp.simulation.minibatches import Shards
from m2fdp.simulation.process import Process, State
from m2fdp.simulation.sampling import draw_participants, poisson_draw
from m2fdp.simulation.simulation import Simulation
from m2fdp.simulation.step_sums import step_sums
from m2fdp.streams import generator, seeded

# Numbers that a deviation is measured from at least, and runs that give them at most.
_NUMBERS, _MOST_RUNS = 2_000, 24
# Of a measured deviation's standard error, what is granted: the chance to exceed it is 3e-7.
_ERRORS = 5.0
# Rounding, over a model's length and the resolution of its numbers.
_ROUNDING = 100.0
_EQUAL = 1 + 1e-6
OTHERWISE = "runs otherwise"

How = Literal["removed", "added", "replaced"]
# Deviations by layer, from those that a mechanism was given to the ledger of them.
LedgerBehind = Callable[[Sequence[np.ndarray]], Ledger]


@dataclass(frozen=True, eq=False)
class Neighbour:
    """What two neighbouring data sets differ in.

    Attributes:
        device: whose records.
        places: int64 (n,), of the records among all.
    """

    device: int
    places: np.ndarray
    how: How


@dataclass(frozen=True, eq=False)
class TriedRun:
    """A run whose lines are tried.

    Attributes:
        simulation: the run's own, with draws that repeat.
        plans: the rounds that are tried, as they are trained.
        rounds: how many the ledger's lines count.
        build: makes the means to run a simulation.
        behind: the run's ledger, were the noise of other deviations.
        worlds: makes of the records two neighbouring sets of them; None = as the engine knows them.
    """

    simulation: Simulation
    ledger: Ledger
    privacy: PrivacyConfig
    plans: Sequence[RoundPlan]
    rounds: int
    build: Callable[[Simulation], Process]
    behind: LedgerBehind
    worlds: Callable[[Shards, Neighbour, np.random.Generator], tuple[Shards, Shards]] | None = None

    @property
    def protection(self) -> Protection:
        """What nodes do."""
        return self.simulation.mechanisms[0]


@dataclass(frozen=True)
class Tried:
    """What was found of one observer's lines, of the line that came nearest to its bound.

    Attributes:
        position, observer: of that line of the ledger.
        neighbours: how many were tried.
        found: the largest shift, over the noise that was drawn, which counts as what is credited
            where it is not measurably less.
        allowed: the ledger's, over the noise that it credits.
        error: of the noise that was drawn, relative, as far as it is granted.
        held: whether every line of the observer held.
        finding: what is wrong, in words.
    """

    position: str
    observer: str
    distrusted: bool
    neighbours: int
    found: float
    allowed: float
    error: float
    held: bool
    finding: str


def try_neighbours(run: TriedRun, count: int, seed: int) -> list[Tried]:
    """A row for each observer with noise before it: so many neighbours, shared out over rounds and
    positions.

    Args:
        seed: what the neighbours are drawn by.

    Raises:
        InputError: nobody has a record, or no line has noise.
    """
    lines = [line for line in run.ledger.lines if _is_tried(line)]
    positions = list(dict.fromkeys(line.position for line in lines))
    if not positions:
        raise InputError("audit.method", "neighbours", "no line of the ledger has noise to try")
    noise, moved = _Drawn(run), {position: _Moved() for position in positions}
    process = run.build(run.simulation)
    state, turn = process.start(), 0
    for number, plan in enumerate(run.plans, start=1):
        first: list[Heard] = []
        after = process.round(state, plan, _Ear(first.append))
        noise.measure(state, plan, first)
        turns = count * number // len(run.plans) - count * (number - 1) // len(run.plans)
        for _ in range(turns):
            position, turn = positions[turn % len(positions)], turn + 1
            stream = generator(seed, "neighbours", turn)
            neighbour = draw_neighbour(run, position, number, len(plan.layers), stream)
            if neighbour is None:
                continue
            moved[position].neighbours += 1
            known = (first, after) if neighbour.how != "added" and run.worlds is None else None
            pair = _Pair(run, position, neighbour, plan, state)
            fraction, finding = pair.moved(known, stream)
            if not fraction <= moved[position].fraction:
                moved[position].fraction, moved[position].finding = fraction, finding
        state = after
    return _rows(run, lines, moved, noise)


def tried_table(tried: Sequence[Tried]) -> pd.DataFrame:
    """One row an observer, columns as in `Tried`."""
    return pd.DataFrame([vars(each) for each in tried])


def _is_tried(line: Release) -> bool:
    """Whether a line is of models that noise protects."""
    return 0 < line.deviation < inf and not line.held_out


@dataclass
class _Moved:
    """Of one position: how far neighbours moved what its head released, over what is allowed."""

    neighbours: int = 0
    fraction: float = -1.0
    finding: str = ""


def _rows(
    run: TriedRun, lines: Sequence[Release], moved: dict[Position, _Moved], noise: _Drawn
) -> list[Tried]:
    """The worst of each kind of observer."""
    drawn = {
        (device, line.kind): line
        for line in noise.ledger().lines
        for device in line.position.members
    }
    result: dict[str, Tried] = {}
    counts: Counter[str] = Counter()
    for line in lines:
        found_there = moved[line.position]
        if not found_there.neighbours:
            continue
        counts[line.kind] += found_there.neighbours
        members = line.position.members
        credited, weaker = _strengths(run, line), 1.0
        for device in members:
            really = _strengths(run, drawn[device, line.kind])
            ratios = (now / was for now, was in zip(really, credited, strict=True) if was)
            weaker = max(weaker, max(ratios, default=0.0) / (1 + noise.error))
        fraction, allowed = found_there.fraction, min(credited)
        found = fraction * weaker * allowed if fraction > 0 else 0.0
        held = bool(found <= allowed * _EQUAL)
        finding = found_there.finding
        if not held and not finding:
            less = f"draws {1 / weaker:.2g} of the noise that it credits"
            finding = less if fraction <= _EQUAL else "moves further than it allows"
        row = Tried(
            position_name(line.position),
            line.observer,
            line.kind in run.ledger.distrusted,
            0,
            found,
            allowed,
            noise.error,
            held,
            "" if held else finding,
        )
        known = result.get(line.kind)
        if known is None or (known.held, -known.found / known.allowed) > (held, -found / allowed):
            result[line.kind] = row
    return [replace(row, neighbours=counts[kind]) for kind, row in result.items()]


def _strengths(run: TriedRun, line: Release) -> list[float]:
    """The largest shift of a line's releases over its noise, by each account of them."""
    counted = Counter(run.ledger.plans[: run.rounds])
    accounts = [account(counted) for account in line.accounts]
    accounts = accounts or [list(run.ledger.released(line, run.rounds))]
    factor = 2.0 if run.ledger.adjacency == "replace_one" else 1.0
    return [
        max(
            (
                factor * law.largest / rounds.deviation if rounds.deviation else inf
                for rounds in account
                for law, _ in rounds.laws
            ),
            default=0.0,
        )
        for account in accounts
    ]


def draw_neighbour(
    run: TriedRun, position: Position, number: int, steps: int, stream: np.random.Generator
) -> Neighbour | None:
    """A neighbour whose record is drawn in a round, if any of the device's is; None where none of
    the position's devices that take part has one."""
    simulation, shards = run.simulation, run.simulation.shards
    sampling = simulation.randomness.sampling
    present = draw_participants(simulation.networks[0], sampling, number)
    able = [j for j in position.members if present[j] and shards.sizes[j]]
    if not able:
        return None
    device = able[int(stream.integers(len(able)))]
    first = int(shards.sizes[:device].sum())
    places = np.arange(first, first + int(shards.sizes[device]))
    if run.privacy.unit == "record":
        drawn = np.concatenate(
            [
                poisson_draw(
                    np.repeat(shards.rates * present, shards.sizes), sampling, number, step + 1
                )
                for step in range(steps)
            ]
        )
        among = np.intersect1d(places, drawn)
        places = stream.choice(among if len(among) else places, 1)
    hows: tuple[How, ...] = ("removed", "added")
    if run.ledger.adjacency == "replace_one":
        hows = ("replaced",)
    return Neighbour(device, places, hows[int(stream.integers(len(hows)))])


def neighbouring(
    shards: Shards, neighbour: Neighbour, stream: np.random.Generator
) -> tuple[Shards, Shards]:
    """Two neighbouring sets of records: as the devices hold them, or, if one is added, without it;
    and the other. Who is added, or replaces somebody, is as bright, as dark or as motley as any."""
    if neighbour.how == "removed":
        return shards, replace(shards, absent=neighbour.places)
    rows = torch.as_tensor(neighbour.places, device=shards.features.device)
    features, labels = shards.features.clone(), shards.labels.clone()
    low, high = float(features.min()), float(features.max())
    of_rows = stream.random((len(rows), *features.shape[1:])) < stream.choice([0.0, 0.5, 1.0])
    features[rows] = torch.as_tensor(np.where(of_rows, high, low)).to(features)
    drawn = stream.integers(int(labels.max()) + 1, size=len(rows))
    labels[rows] = torch.as_tensor(drawn, device=labels.device)
    changed = replace(shards, features=features, labels=labels)
    if neighbour.how == "replaced":
        return shards, changed
    return replace(changed, absent=neighbour.places), changed


@dataclass(frozen=True, eq=False)
class Heard:
    """Something that a tap heard: a message, a broadcast, or what is noised inside a round.

    Attributes:
        what: up, down, step or cloud.
        layer: of the nodes.
        nodes: int64 (n,), whose models they are.
        models: (n, M), as they went on.
    """

    what: str
    layer: int
    nodes: np.ndarray
    models: Tensor

    @property
    def key(self) -> tuple[str, int, tuple[int, ...], torch.Size]:
        """All but the numbers."""
        return self.what, self.layer, tuple(self.nodes.tolist()), self.models.shape


@dataclass(frozen=True, eq=False)
class _Ear:
    """Hands on copies, or, to `replay`, the models themselves; see `m2fdp.simulation.process.Ear`.

    Attributes:
        hear: called with each; the models are copies.
        replay: called instead.
    """

    hear: Callable[[Heard], None] | None = None
    replay: Callable[[Heard], None] | None = None

    def __call__(self, direction: Literal["up", "down"], layer: int, models: Tensor) -> None:
        self.inside(direction, layer, np.arange(len(models)), models)

    def inside(self, what: str, layer: int, nodes: np.ndarray, models: Tensor) -> None:
        """See `m2fdp.simulation.process.Ear`."""
        if self.replay is not None:
            self.replay(Heard(what, layer, nodes, models))
        elif self.hear is not None:
            self.hear(Heard(what, layer, nodes, models.clone()))


class _OtherwiseError(Exception):
    """The two runs do different things."""


def _next(first: Iterator[Heard], now: Heard) -> Heard:
    """What the first run did at the same place.

    Raises:
        _OtherwiseError: something else.
    """
    before = next(first, None)
    if before is None or before.key != now.key:
        raise _OtherwiseError
    return before


@dataclass(frozen=True, eq=False)
class _Pair:
    """One round of two runs that differ in a neighbour, from one state."""

    run: TriedRun
    position: Position
    neighbour: Neighbour
    plan: RoundPlan
    state: State

    def moved(
        self, known: tuple[list[Heard], State] | None, stream: np.random.Generator
    ) -> tuple[float, str]:
        """The largest part of what is allowed that a release was moved by, infinite where the runs
        differ in more; and a finding.

        Args:
            known: what the first run sends, and ends in, if it has been run.
        """
        worlds = self.run.worlds or neighbouring
        one, other = worlds(self.run.simulation.shards, self.neighbour, stream)
        if known is None:
            first: list[Heard] = []
            after = self._round(one, _Ear(first.append))
            known = first, after
        follower = _Follower(self, iter(known[0]))
        try:
            ended = self._round(other, _Ear(replay=follower.compare))
            if next(follower.first, None) is not None:
                raise _OtherwiseError
        except (_OtherwiseError, InputError, TooLongError):
            return inf, OTHERWISE
        if not follower.released:
            return inf, "releases nothing that is noised"
        follower.compare_states(known[1], ended)
        return follower.fraction, follower.finding

    def _round(self, shards: Shards, ear: _Ear) -> State:
        process = self.run.build(replace(self.run.simulation, shards=shards))
        return process.round(self.state, self.plan, ear)


@dataclass(eq=False)
class _Follower:
    """Compares the second run with the first, and has it go on with what the first one released."""

    pair: _Pair
    first: Iterator[Heard]
    fraction: float = 0.0
    finding: str = ""
    released: int = 0
    private: bool = False

    def compare(self, now: Heard) -> None:
        """Compare what is heard at one place, and overwrite what observers may read."""
        before = _next(self.first, now)
        head = self._head
        equal, row = np.ones(len(now.nodes), dtype=bool), -1
        node = self._path(now)
        if self._is_release(now):
            row = int(np.flatnonzero(now.nodes == node)[0]) if node in now.nodes else -1
            if row >= 0:
                equal[row] = False
                self._compare_release(before, now, row)
            self.private = False
        elif not self._stepwise and self._below(now):
            tree = self.pair.run.simulation.networks[0].tree
            of_head = tree.ancestors_of(now.layer, head)[now.nodes] == self._ancestor(head)
            equal[of_head] = False
            self.private = True
            rows = torch.as_tensor(np.flatnonzero(equal), device=now.models.device)
            self._compare_equal(before.models[rows], now.models[rows], now)
            now.models[rows] = before.models[rows]
            return
        rows = torch.as_tensor(np.flatnonzero(equal), device=now.models.device)
        self._compare_equal(before.models[rows], now.models[rows], now)
        now.models.copy_(before.models)

    def compare_states(self, one: State, other: State) -> None:
        """Two runs that went on from the same releases end alike."""
        if self.private:
            return
        end = Heard("state", 0, np.zeros(1), one.weights)
        self._compare_equal(one.weights[None], other.weights[None], end)
        for kept, of_other in (
            (one.slots.server, other.slots.server),
            (one.slots.device, other.slots.device),
        ):
            for name, values in kept.items():
                shape = (-1, values.shape[-1])
                self._compare_equal(values.reshape(shape), of_other[name].reshape(shape), end)

    @property
    def _stepwise(self) -> bool:
        return bool(self.pair.run.protection.noise.steps.any())

    @property
    def _head(self) -> int:
        """The layer of who noises first what the device sends."""
        protection, device = self.pair.run.protection, self.pair.neighbour.device
        if not protection.clipping.of_models:
            return self.pair.position.head_layer
        tree, messages = self.pair.run.simulation.networks[0].tree, protection.noise.messages
        noised = (at for at in range(tree.depth, 0, -1) if messages[at][tree.ancestors[at][device]])
        return next(noised, 0)

    def _ancestor(self, layer: int) -> int:
        tree = self.pair.run.simulation.networks[0].tree
        return int(tree.ancestors[layer][self.pair.neighbour.device])

    def _path(self, now: Heard) -> int:
        """The node on the device's path that is heard."""
        if now.what == "step":
            lock_step = self.pair.run.protection.lock_step
            layer, node = lock_step.nodes[lock_step.group_of[self.pair.neighbour.device]]
            return int(node) if layer == now.layer else -1
        return self._ancestor(now.layer)

    def _is_release(self, now: Heard) -> bool:
        if self._stepwise or now.what == "step":
            return now.what == "step"
        if now.what == "down":
            broadcasts = self.pair.run.protection.noise.broadcasts[now.layer]
            return now.layer >= self._head and bool(broadcasts[self._ancestor(now.layer)])
        return now.layer == self._head and (now.layer > 0 or now.what == "cloud")

    def _below(self, now: Heard) -> bool:
        """Whether something is heard where a head's un-noised models are, which no one distrusted
        reads."""
        if now.what == "down":
            return now.layer >= self._head
        return now.layer > self._head

    def _compare_release(self, before: Heard, now: Heard, row: int) -> None:
        there = before.models[row].double()
        moved = float((now.models[row].double() - there).norm())
        allowed = self._allowed(now)
        self.released += 1
        past_rounding = moved - _rounding(there, now.models)
        fraction = max(past_rounding, 0.0) / allowed if isfinite(moved) else inf
        if not fraction <= self.fraction:
            self.fraction = fraction
            if not isfinite(moved):
                self.finding = "releases what is no number"

    def _compare_equal(self, one: Tensor, other: Tensor, now: Heard) -> None:
        """What can't depend on the neighbour but through releases."""
        apart = (one.double() - other.double()).norm(dim=-1)
        lengths = one.double().norm(dim=-1)
        grain = _ROUNDING * torch.finfo(one.dtype).eps
        same = (apart <= grain * (1 + lengths)) | (one == other).all(-1)
        if not bool(same.all()):
            where = {"up": "what is sent", "down": "a broadcast", "step": "a local step"}
            self.fraction = inf
            self.finding = f"{where.get(now.what, 'the model')} of layer {now.layer} tells more"

    def _allowed(self, now: Heard) -> float:
        """How far a neighbour may move a release, in a model."""
        run, plan, position = self.pair.run, self.pair.plan, self.pair.position
        network, device = run.simulation.networks[0], self.pair.neighbour.device
        number = self.pair.state.round
        planned = run.ledger.plans[number]
        line = next(each for each in run.ledger.lines if each.position is position)
        factor = 2.0 if run.ledger.adjacency == "replace_one" else 1.0
        head, depth = position.head_layer, network.tree.depth
        if self._stepwise:
            share = network.shares(head, now.layer)[self._ancestor(head)]
            laws = line.laws(position, planned)
        elif run.protection.clipping.of_models:
            share = network.shares(depth, now.layer)[device] / network.shares(depth, head)[device]
            laws = line.laws(position, planned)
        else:
            window = windows(planned, head, run.privacy.downlink_noise)[self.released]
            top = 0 if window.release_layer == head else window.release_layer
            laws = line.laws(position, replace(planned, layers=(*window.syncs[:-1], top)))
            share = 1.0
        largest = max(law.largest for law, _ in laws)
        scale = run.protection.noise.scale(plan.step_size)
        return float(factor * largest * position.unit * scale * share)


def _rounding(there: Tensor, models: Tensor) -> float:
    return float(_ROUNDING * torch.finfo(models.dtype).eps * (1 + there.norm()))


@dataclass(eq=False)
class _Drawn:
    """The noise that nodes really draw, over what they are to draw.

    Attributes:
        squares, numbers: of noise over its planned deviation, by what is noised and whose it is.
    """

    run: TriedRun
    squares: dict[tuple[str, int, int], float] = field(default_factory=lambda: defaultdict(float))
    numbers: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def measure(self, state: State, plan: RoundPlan, first: list[Heard]) -> None:
        """Repeat a round with other noise, and compare what each node adds."""
        run = self.run
        size, rounds = len(state.weights), len(run.plans)
        for again in range(min(ceil(_NUMBERS / (size * rounds)), _MOST_RUNS)):
            key = f"noise of neighbours, {again}".encode()
            draws = replace(run.simulation.randomness, noise=seeded(again, key).noise)
            process = run.build(replace(run.simulation, randomness=draws))
            listener = _Measured(self, state.round + 1, plan, iter(first))
            process.round(state, plan, _Ear(replay=listener.compare))

    @property
    def error(self) -> float:
        """Of a measured deviation, relative, as far as it is granted."""
        least = min(self.numbers.values(), default=0)
        return _ERRORS / sqrt(2 * least) if least else 0.0

    def ratio(self, what: str, layer: int, node: int) -> float:
        """Of a node's noise to what was planned; 1 where it drew nothing since it did not come."""
        key = what, layer, node
        return sqrt(self.squares[key] / self.numbers[key]) if self.numbers[key] else 1.0

    def ledger(self) -> Ledger:
        """The run's, of the noise that was drawn."""
        noise = self.run.protection.noise

        def times(what: str, layer: int, planned: np.ndarray) -> np.ndarray:
            ratios = [self.ratio(what, layer, node) for node in range(len(planned))]
            return planned * np.array(ratios)

        if noise.steps.any():
            return self.run.behind(self._of_heads())
        total = [times("total", at, of_layer) for at, of_layer in enumerate(noise.messages)]
        downs = [times("down", at, of_layer) for at, of_layer in enumerate(noise.broadcasts)]
        if not self.run.protection.clipping.of_models:
            if self.run.privacy.downlink_noise:  # one deviation is said of both ways
                ratios = [
                    self.ratio("down", at, int(node))
                    for at, of_layer in enumerate(noise.broadcasts)
                    for node in np.flatnonzero(of_layer)
                ]
                worst = min(ratios, default=1.0)
                total = [
                    of_layer * min(worst, 1.0) if worst < 1 - self.error else of_layer
                    for of_layer in total
                ]
            return self.run.behind(total)
        sent = noise.local_messages or noise.messages
        local = [times("local", at, of_layer) for at, of_layer in enumerate(sent)]
        local[1] = downs[1]
        return self.run.behind([np.stack(pair, axis=1) for pair in zip(total, local, strict=True)])

    def _of_heads(self) -> list[np.ndarray]:
        """What heads add to steps: of the noise of their lock-step group, their part."""
        protection, tree = self.run.protection, self.run.simulation.networks[0].tree
        result = [of_layer.copy() for of_layer in protection.noise.heads]
        lock_step = protection.lock_step
        for number, (layer, node) in enumerate(lock_step.nodes.tolist()):
            ratio = self.ratio("step", layer, node)
            devices = np.flatnonzero(lock_step.group_of == number)
            for at, of_layer in enumerate(result):
                if at >= layer:
                    of_layer[np.unique(tree.ancestors[at][devices])] *= ratio
        return result


@dataclass(eq=False)
class _Measured:
    """Compares a run with itself under other noise."""

    drawn: _Drawn
    number: int
    plan: RoundPlan
    first: Iterator[Heard]
    step: dict[tuple[int, ...], int] = field(default_factory=Counter)
    stretch: int = 0

    def compare(self, now: Heard) -> None:
        """What each node adds is what is left once all that it was sent is the same."""
        before = _next(self.first, now)
        apart = (now.models.double() - before.models.double()).square().sum(1).tolist()
        scale = self.drawn.run.protection.noise.scale(self.plan.step_size)
        what, planned = self._planned(now)
        present = draw_participants(
            self.drawn.run.simulation.networks[0],
            self.drawn.run.simulation.randomness.sampling,
            self.number,
        )
        devices = len(self.drawn.run.simulation.networks[0].tree.parents)
        for row, node in enumerate(now.nodes.tolist()):
            if not planned[row] or (now.layer == devices and not present[node]):
                continue
            key = what, now.layer, node
            variance = 2 * (planned[row] * scale) ** 2
            self.drawn.squares[key] += apart[row] / variance
            self.drawn.numbers[key] += now.models.shape[1]
        self.stretch += now.what == "down"
        now.models.copy_(before.models)

    def _planned(self, now: Heard) -> tuple[str, np.ndarray]:
        """Under which name, and how large noise is to be, in the mechanism's unit."""
        run, noise = self.drawn.run, self.drawn.run.protection.noise
        if now.what == "step":
            key = now.layer, *now.nodes.tolist()
            self.step[key] += 1
            step, simulation = self.step[key], run.simulation
            present = draw_participants(
                simulation.networks[0], simulation.randomness.sampling, self.number
            )
            sums = step_sums(simulation, self.plan, present, self.number)[step - 1]
            nodes = run.protection.lock_step.nodes
            groups = [
                int(np.flatnonzero((nodes == (now.layer, node)).all(1))[0]) for node in now.nodes
            ]
            before = (self.number - 1) * len(self.plan.layers) + step - 1
            past = 1.0 + sum(part**2 for part in noise.past[:before])
            return "step", sums.noise[groups] * sqrt(past)
        if now.what == "down":
            return "down", noise.broadcasts[now.layer]
        if now.what == "cloud":
            return "total", noise.messages[0]
        top = self.plan.stretches[self.stretch][2]
        name = "total" if top == 0 or noise.local_messages is None else "local"
        return name, noise.sent(top)[now.layer]
