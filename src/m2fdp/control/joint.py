"""One ledger of a run over the networks that a controller chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.releases import Release


def joint_ledger(ledgers: Sequence[Ledger]) -> Ledger:
    """One ledger of a run over several networks, from the whole run's ledger in each.

    The networks differ in who takes part, so every device has the same kinds of observers in
    all. Devices share a line where they share a position in every network.
    """
    of_networks = [_lines_by_position(ledger) for ledger in ledgers]
    position_of = [
        {device: position for position in lines for device in position.members}
        for lines in of_networks
    ]
    groups: dict[tuple[Position, ...], list[int]] = {}
    for device in sorted(position_of[0]):
        groups.setdefault(tuple(of[device] for of in position_of), []).append(device)
    joined = []
    for (first, *others), devices in groups.items():
        position = replace(first, members=tuple(devices))
        for kind, line in of_networks[0][first].items():
            seen = zip(others, of_networks[1:], strict=True)
            elsewhere = tuple((other, lines[other][kind].deviation) for other, lines in seen)
            joined.append(replace(line, position=position, elsewhere=elsewhere))
    return replace(ledgers[0], lines=tuple(joined))


def _lines_by_position(ledger: Ledger) -> dict[Position, dict[str, Release]]:
    """The lines of every position by kind of observer; each position has one of a kind."""
    result: dict[Position, dict[str, Release]] = {}
    for line in ledger.lines:
        result.setdefault(line.position, {})[line.kind] = line
    return result
