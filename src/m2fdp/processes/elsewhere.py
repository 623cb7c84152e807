"""Blocks of a simulation that are computed elsewhere, in processes that share no memory with this
one: what travels there and back.

A part of the simulation goes once to whoever computes it. Then, every round, what is drawn of it
travels there with what the part's learners keep, and the blocks' sums come back with it. The cloud
stays here. A round of a part follows from these values alone, so it can be computed again by
somebody else, to the same bytes.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.execution import Means, build_means, set_exact_arithmetic
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.rules import Named
from m2fdp.core.engine.seams import Drawn
from m2fdp.core.engine.tree_process import TreeProcess, round_of
from m2fdp.processes.pool import packed, unpacked
from m2fdp.processes.subtrees import Part, part_of
from m2fdp.processes.workers import even_ranges

_NUMBERS = count()


class Piece(NamedTuple):
    """Some blocks of a simulation, as sites know them."""

    simulation: int  # a number that no other simulation of this process has
    blocks: range


class Sites(Protocol):
    """Processes, on whatever machines, each with a `Site`."""

    @property
    def count(self) -> int:
        """How many of them compute at a time."""

    def compute(
        self, drawn: bytes, kept: Mapping[Piece, bytes], content_of: Callable[[Piece], bytes]
    ) -> Mapping[Piece, bytes]:
        """Have every piece computed by a site (`Site.compute`).

        Args:
            drawn: what is drawn of the round, packed.
            kept: what the learners of each piece keep, packed.
            content_of: makes what a site has to hold to compute a piece.
        """


class Site:
    """Who computes some pieces of simulations, in a process of its own."""

    def __init__(self) -> None:
        set_exact_arithmetic()
        self._parts: dict[Piece, tuple[Part, Means, type[Round]]] = {}

    def compute(
        self, piece: Piece, drawn: bytes, kept: bytes, content: bytes | None = None
    ) -> bytes:
        """A round of a piece (`Sites.compute`): packed, what each block adds to the cloud's sum,
        (n, M), and what learners keep. `content` is held from now on; None = it is already."""
        if content is not None:
            part, settings, kinds = unpacked(content)
            means = build_means(part.simulation, part.place, settings)
            self._parts[piece] = part, means, round_of(kinds)
        part, means, kind = self._parts[piece]
        slots = unpacked(kept)
        current = kind(part.simulation, means, part.of(unpacked(drawn)), slots)
        return packed((current.below(), slots))


class Elsewhere:
    """The means to have a simulation's blocks computed by sites, each about as much.

    Args:
        process: the cloud's own.
        costs: float64 (n,), of each block.
    """

    def __init__(self, process: TreeProcess, sites: Sites, costs: np.ndarray) -> None:
        self._process, self._sites, number = process, sites, next(_NUMBERS)
        # Places of each piece's lock-step groups among all, int64 (g,).
        self._groups = {
            Piece(number, blocks): torch.as_tensor(part_of(process.simulation, blocks).groups)
            for blocks in even_ranges(costs, sites.count)
        }

    def compute(self, drawn: Drawn, slots: Named, sums: Tensor) -> None:
        """Have all blocks computed, and put what they add to the cloud's sum, (n, M), and what
        learners keep, where the cloud has them.
        """
        kept = {
            piece: packed({name: of_all[rows] for name, of_all in slots.items()})
            for piece, rows in self._groups.items()
        }
        for piece, content in self._sites.compute(packed(drawn), kept, self._content).items():
            of_blocks, new_slots = unpacked(content)
            sums[piece.blocks.start : piece.blocks.stop] = of_blocks
            for name, of_piece in new_slots.items():
                slots[name][self._groups[piece]] = of_piece

    def _content(self, piece: Piece) -> bytes:
        """The part of a piece's blocks, and how it is executed."""
        part = part_of(self._process.simulation, piece.blocks)
        return packed((part, self._process.settings, self._process.kind.kinds))
