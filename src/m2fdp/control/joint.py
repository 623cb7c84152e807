"""One ledger of a run over the networks that a controller chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.releases import Release


def joint_ledger(ledgers: Sequence[Ledger]) -> Ledger:
    """One ledger of a run over several networks, from the whole run's ledger in each.

    The networks differ in who takes part, so every device has the same kinds of observers in
    all. Devices share a line where they share a position in every network.
    """
    lines = [_lines_by_position(ledger) for ledger in ledgers]
    n_devices = sum(len(position.members) for position in lines[0])
    places = np.empty((n_devices, len(ledgers)), dtype=np.int64)
    for network, positions_ in enumerate(lines):
        for place, position in enumerate(positions_):
            places[list(position.members), network] = place
    _, first, inverse = np.unique(places, axis=0, return_index=True, return_inverse=True)
    ordered = [list(positions_.items()) for positions_ in lines]
    joined = []
    for group in np.argsort(first):
        (first_position, first_lines), *others = [
            ordered[network][place] for network, place in enumerate(places[first[group]])
        ]
        position = replace(first_position, members=tuple(np.flatnonzero(inverse == group).tolist()))
        for line in first_lines.values():
            elsewhere = tuple((other, by_kind[line.kind].deviation) for other, by_kind in others)
            joined.append(replace(line, position=position, elsewhere=elsewhere))
    return replace(ledgers[0], lines=tuple(joined))


def _lines_by_position(ledger: Ledger) -> dict[Position, dict[str, Release]]:
    """The lines of every position by kind of observer; each position has one of a kind."""
    result: dict[Position, dict[str, Release]] = {}
    for line in ledger.lines:
        result.setdefault(line.position, {})[line.kind] = line
    return result
