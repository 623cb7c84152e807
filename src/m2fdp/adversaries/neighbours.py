"""The differential test: two runs that differ in one record, or one device, and in nothing else.

Minibatches, participants and noise are drawn alike in both, so that noise drops out of the
difference of two messages, and what is left is how far the neighbour moves them. Two gradients
taken at different models differ, and composition allows that: what is released later may depend on
what was released before. So the second run goes on with the first one's release wherever one has
been compared, as the observer saw it. From then on the two must be equal, whatever is sent, until
records enter again; below the head, where nobody reads who is not trusted, they may part.

How large the noise is, is measured, not believed (`m2fdp.adversaries.drawn_noise`). The ledger is
then built anew from the deviations that were really drawn, so that every observer's line counts the
noise that it can't subtract. A line holds if

    largest shift found <= largest shift allowed, and noise drawn >= noise credited.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, isfinite

import numpy as np
import torch
from torch import Tensor

from m2fdp.adversaries.drawn_noise import DrawnNoise, planned_of_part
from m2fdp.adversaries.tried_runs import (
    Heard,
    Neighbour,
    OtherwiseError,
    TriedRun,
    draw_neighbour,
    record,
    replay,
    single_releases,
)
from m2fdp.core.engine.process import State
from m2fdp.core.engine.rules import TooLongError
from m2fdp.core.engine.training import DivergenceError
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.accounting import ShiftLaw
from m2fdp.core.privacy.positions import Position, position_name
from m2fdp.core.privacy.releases import Release
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import generator

# Of rounding.
_EQUAL = 1 + 1e-6
_PLACES = {"up": "what is sent", "down": "a broadcast", "step": "a local step", "state": "a model"}

# How far a neighbour moved what is released: the largest shift over what is allowed, infinite where
# the two runs differ in more than releases; and what is wrong then, in words.
Moved = tuple[float, str]


@dataclass(frozen=True)
class Tried:
    """What was found of one kind of observer: of that of its lines that came nearest to its bound.

    Attributes:
        position, observer: of that line of the ledger.
        neighbours: how many were tried at all positions.
        found: the largest shift, over the noise that was drawn, which counts as what is credited
            where it is not measurably less.
        allowed: the ledger's, over the noise that it credits.
        error: relative error of the noise that was drawn, as far as it is granted.
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
    """A row for each kind of observer with noise before it.

    So many neighbours are tried, by turns in all positions, over all rounds; one a position at
    least.

    Raises:
        InputError: no line has noise, or nobody who takes part has records.
        DivergenceError, TooLongError: the run's own model is made of no numbers, or too long.
    """
    lines = [
        line for line in run.ledger.lines if 0 < line.deviation < inf and not line.account.held_out
    ]
    of_position = {line.position: line for line in lines}
    if not lines:
        raise InputError("audit.method", "neighbours", "finds no line of the ledger with noise")
    noise, found = DrawnNoise(run), {position: list[Moved]() for position in of_position}
    count = max(count, len(found))
    process = run.build(run.simulation)
    state = process.start()
    for number, plan in enumerate(run.plans, start=1):
        known = record(process, state, plan)
        if not bool(known[1].weights.isfinite().all()):
            raise DivergenceError(number, plan.step_size)
        noise.measure(state, plan, known[0])
        first, last = (count * rounds // len(run.plans) for rounds in (number - 1, number))
        for turn in range(first, last):
            position = list(found)[turn % len(found)]
            stream = generator(seed, "neighbours", turn)
            neighbour = draw_neighbour(run, position, number, stream)
            if neighbour is not None:
                line = of_position[position]
                found[position].append(moved(run, line, neighbour, state, known, stream))
        state = known[1]
    if not any(found.values()):
        raise InputError("audit.method", "neighbours", "finds no device with records in any round")
    return _rows(run, lines, found, noise)


def _rows(
    run: TriedRun, lines: Sequence[Release], found: dict[Position, list[Moved]], noise: DrawnNoise
) -> list[Tried]:
    """The worst line of each kind of observer, those that did not hold before others."""
    of_drawn = {
        (device, line.kind): line
        for line in noise.ledger().lines
        for device in line.position.members
    }
    worst: dict[str, Tried] = {}
    counts: Counter[str] = Counter()
    for line in (line for line in lines if found[line.position]):
        counts[line.kind] += len(found[line.position])
        really = [of_drawn[device, line.kind] for device in line.position.members]
        row = _row(run, line, found[line.position], really, noise.error)
        before = worst.get(line.kind)
        if before is None or _nearness(row) > _nearness(before):
            worst[line.kind] = row
    return [replace(row, neighbours=counts[kind]) for kind, row in worst.items()]


def _row(
    run: TriedRun, line: Release, found: Sequence[Moved], really: Sequence[Release], error: float
) -> Tried:
    """What was found of a line; `really` are the same line of each member of the position, behind
    the noise that was drawn."""
    weaker = max(1.0, max(_weaker(run, line, each) for each in really) * (1 - error))
    fraction, finding = max(found, key=lambda each: each[0])
    allowed = min(_strengths(run, line))
    shift = fraction * weaker * allowed if fraction > 0 else 0.0
    held = fraction <= _EQUAL and weaker <= _EQUAL
    if not held and not finding:
        less = f"no more than {1 / weaker:.2g} of the credited noise is drawn"
        finding = less if fraction <= _EQUAL else "a release moves further"
    return Tried(
        position_name(line.position),
        line.observer,
        line.kind in run.ledger.distrusted,
        len(found),
        shift,
        allowed,
        error,
        held,
        "" if held else finding,
    )


def _nearness(row: Tried) -> tuple[bool, float]:
    """How near a line came to its bound; what was broken comes nearest."""
    return not row.held, row.found / row.allowed if row.allowed else 0.0


def _weaker(run: TriedRun, line: Release, really: Release) -> float:
    """The noise that is credited over that of the same line as it was drawn."""
    if not line.account.by_laws:
        pairs = list(zip(_strengths(run, really), _strengths(run, line), strict=True))
    else:
        pairs = list(zip(line.noises, really.noises, strict=True))
    return max((one / other if other else inf for one, other in pairs if one), default=0.0)


def _strengths(run: TriedRun, line: Release) -> list[float]:
    """The largest shift of a line's releases over its noise, by each way to count them."""
    factor = 2.0 if run.ledger.adjacency == "replace_one" else 1.0

    def strength(law: ShiftLaw, deviation: float) -> float:
        return factor * law.largest / deviation if deviation else inf

    ways = run.ledger.ways(line, run.rounds)
    found = ([strength(law, at.deviation) for at in way for law, _ in at.laws] for way in ways)
    return [max(each, default=0.0) for each in found]


def moved(
    run: TriedRun,
    line: Release,
    neighbour: Neighbour,
    state: State,
    known: tuple[list[Heard], State],
    stream: np.random.Generator,
) -> Moved:
    """What a neighbour moves in the round after a state.

    Args:
        line: any of the neighbour's position.
        known: what is heard of the run's own records in the round, and the state after it.
    """
    plan = run.plans[state.round]
    one, other = run.worlds(run.simulation.shards, neighbour, stream)
    if one is not run.simulation.shards:
        known = record(run.build(replace(run.simulation, shards=one)), state, plan)
    first, ended = known
    follower = _Follower(run, line, neighbour, plan, run.ledger.plans[state.round])
    try:
        process = run.build(replace(run.simulation, shards=other))
        after = replay(process, state, plan, first, follower.compare)
    except (OtherwiseError, InputError, TooLongError):
        return (inf, "the run goes otherwise with the neighbour than without")
    if not follower.released:
        return (inf, "nothing that noise protects is heard of the neighbour")
    follower.compare_ends(ended, after)
    return follower.fraction, follower.finding


@dataclass(eq=False)
class _Follower:
    """Compares the second run with the first, and has it go on with what the first one released.

    Attributes:
        plan, counted: the round's, as it is run and as the ledger counts it.
        released: how many releases were compared.
        activations: how far those of the last batch were moved, over their noise.
        sent_parts: whether the device splits its model in this round.
    """

    run: TriedRun
    line: Release
    neighbour: Neighbour
    plan: RoundPlan
    counted: RoundPlan
    fraction: float = 0.0
    finding: str = ""
    released: int = 0
    activations: float = 0.0
    sent_parts: bool = False

    def compare(self, before: Heard, now: Heard) -> None:
        """Compare what is heard at one place, and overwrite what somebody may read."""
        rows = np.broadcast_to(now.nodes, len(now.models))
        own, private = np.zeros(len(rows), dtype=bool), False
        if now.what in ("activations", "gradients"):
            own = rows == self.neighbour.device
            if own.any():
                self._compare_part(before, now)
        elif self._is_release(now):
            # What was sent in parts is what the step is made of.
            own = (rows == self._on_path(now)) & (not self.sent_parts)
            if own.any():
                self._compare_release(before.models[own], now)
        elif self._is_below(now):
            head, private = self._head, True
            own = self.run.network.tree.ancestors_of(now.layer, head)[rows] == self._at(head)
        others = torch.as_tensor(~own, device=now.models.device)
        self._compare_equal(before.models[others], now.models[others], now.what)
        overwritten = others if private else torch.ones_like(others)
        now.models[overwritten] = before.models[overwritten]

    def compare_ends(self, one: State, other: State) -> None:
        """Two runs that went on from the same releases end alike."""
        ends = [
            [state.weights, *state.slots.server.values(), *state.slots.device.values()]
            for state in (one, other)
        ]
        for values, others in zip(*ends, strict=True):
            self._compare_equal(torch.atleast_2d(values), torch.atleast_2d(others), "state")

    @property
    def _head(self) -> int:
        """The layer of who noises first what the device sends."""
        protection, tree = self.run.protection, self.run.network.tree
        if not protection.clipping.of_models:
            return self.line.position.head_layer
        messages = protection.noise.messages
        noised = (at for at in range(tree.depth, 0, -1) if messages[at][self._at(at)])
        return next(noised, 0)

    def _at(self, layer: int) -> int:
        return int(self.run.network.tree.ancestors[layer][self.neighbour.device])

    def _on_path(self, now: Heard) -> int:
        """Of the nodes that are heard, that on the device's path; -1 = none of them."""
        if now.what != "step":
            return self._at(now.layer)
        lock_step = self.run.protection.lock_step
        layer, node = lock_step.nodes[lock_step.group_of[self.neighbour.device]].tolist()
        return int(node) if layer == now.layer else -1

    def _is_release(self, now: Heard) -> bool:
        noise = self.run.protection.noise
        if noise.in_steps:
            return now.what == "step"
        if now.what == "down":
            return now.layer >= self._head and bool(
                noise.broadcasts[now.layer][self._at(now.layer)]
            )
        return now.layer == self._head and (now.layer > 0 or now.what == "cloud")

    def _is_below(self, now: Heard) -> bool:
        """Whether models are heard that no noise covers yet, which the ledger calls in clear."""
        if self.run.protection.noise.in_steps:
            return False
        return now.layer >= self._head if now.what == "down" else now.layer > self._head

    def _compare_release(self, before: Tensor, now: Heard) -> None:
        laws = self._laws
        if self.released >= len(laws):
            self.fraction, self.finding = inf, "more is released than the ledger counts"
            return
        own = torch.as_tensor(now.nodes == self._on_path(now), device=now.models.device)
        there = before.double()
        apart = float((now.models[own].double() - there).norm())
        past_rounding = max(apart - self.run.grain * (1 + float(there.norm())), 0.0)
        allowed = laws[self.released] * self._unit(now)
        self._found(past_rounding / allowed if isfinite(apart) else inf)

    def _compare_part(self, before: Heard, now: Heard) -> None:
        """Activations and the gradient of a batch, which together are one release."""
        run = self.run
        apart = float((now.models.double() - before.models.double()).norm())
        over_noise = apart / planned_of_part(run, now)
        if now.what == "activations":
            self.activations, self.sent_parts = over_noise, True
            return
        (law, _), *_ = self.line.laws(self.line.position, self.counted)
        strength = 2 * law.largest * self.line.position.unit / planned_of_part(run, now)
        self._found(hypot(over_noise, self.activations) / strength)

    def _found(self, fraction: float) -> None:
        self.released += 1
        if not isfinite(fraction):
            self.fraction, self.finding = inf, "what is released is no number"
        self.fraction = max(self.fraction, fraction)

    def _compare_equal(self, one: Tensor, other: Tensor, what: str) -> None:
        """What can depend on the neighbour through releases alone."""
        apart = (one.double() - other.double()).norm(dim=-1)
        near = apart <= self.run.grain * (1 + one.double().norm(dim=-1))
        if not bool((near | (one == other).all(-1)).all()):
            self.fraction = inf
            self.finding = f"{_PLACES.get(what, what)} tells more of the neighbour than releases do"

    @property
    def _laws(self) -> list[float]:
        """The largest shift of each release of the round, in order, in the position's unit."""
        protection, position, plans = self.run.protection, self.line.position, [self.counted]
        if not (protection.noise.in_steps or protection.clipping.of_models):
            plans = single_releases(self.counted, position.head_layer)
        laws = [law for plan in plans for law in self.line.laws(position, plan)]
        return [law.largest for law, count in laws for _ in range(count)]

    def _unit(self, now: Heard) -> float:
        """What shift 1 means in a model that is heard."""
        run, position, network = self.run, self.line.position, self.run.network
        device, depth, head = self.neighbour.device, network.tree.depth, position.head_layer
        share = 1.0
        if run.protection.noise.in_steps:
            share = float(network.shares(head, now.layer)[self._at(head)])
        elif run.protection.clipping.of_models:
            path = network.shares(depth, now.layer)[device] / network.shares(depth, head)[device]
            share = float(path)
        # Of two records that replace each other both move it.
        factor = 2.0 if run.ledger.adjacency == "replace_one" or run.splits(device) else 1.0
        return factor * position.unit * run.protection.noise.scale(self.plan.step_size) * share
