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

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from m2fdp.adversaries.differences import Moved, moved
from m2fdp.adversaries.drawn_noise import DrawnNoise
from m2fdp.adversaries.listening import record
from m2fdp.adversaries.tried_runs import TriedRun, draw_neighbour
from m2fdp.core.engine.training import DivergenceError
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.positions import Position, position_name
from m2fdp.core.privacy.releases import Release
from m2fdp.core.streams import generator

# Of rounding.
_EQUAL = 1 + 1e-6


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

    Args:
        count: how many neighbours are tried, by turns in all positions, over all rounds; one a
            position at least.
        seed: what they are drawn by.

    Raises:
        InputError: no line has noise, or nobody who takes part has records.
        DivergenceError: the run's own model is no longer made of numbers.
        TooLongError: or so long that rounding it would tell of a record.
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
    run: TriedRun,
    lines: Sequence[Release],
    found: dict[Position, list[Moved]],
    noise: DrawnNoise,
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
    run: TriedRun,
    line: Release,
    found: Sequence[Moved],
    really: Sequence[Release],
    error: float,
) -> Tried:
    """What was found of a line.

    Args:
        really: the same line of each member of the position, behind the noise that was drawn.
    """
    weaker = max(1.0, max(_weaker(run, line, each) for each in really) * (1 - error))
    furthest = max(found, key=lambda each: each.fraction)
    allowed, shift = min(_strengths(run, line)), 0.0
    if furthest.fraction > 0:
        shift = furthest.fraction * weaker * allowed
    held, finding = furthest.fraction <= _EQUAL and weaker <= _EQUAL, furthest.finding
    if not held and not finding:
        less = f"no more than {1 / weaker:.2g} of the credited noise is drawn"
        finding = less if furthest.fraction <= _EQUAL else "a release moves further"
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
    return [
        max(
            (
                factor * law.largest / rounds.deviation if rounds.deviation else inf
                for rounds in way
                for law, _ in rounds.laws
            ),
            default=0.0,
        )
        for way in run.ledger.ways(line, run.rounds)
    ]
