"""Blocks of a simulation that are computed elsewhere, in processes that share no memory with this
one: what travels there and back.

A part of the simulation goes once to whoever computes it. Then, every round, the announcement
travels there with what the part's learners keep, and the blocks' sums come back with it. The cloud
stays here. A round of a part follows from these values alone, so it can be computed again by
somebody else, to the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import torch

from m2fdp.core.engine.announcements import Announcement
from m2fdp.core.engine.arithmetic import set_exact_arithmetic
from m2fdp.core.engine.executor import Executor, Means, build_means
from m2fdp.core.engine.part_rounds import run_part
from m2fdp.core.engine.process import Named
from m2fdp.core.engine.subtrees import Part, part_of
from m2fdp.core.errors import InputError
from m2fdp.processes.packing import packed, unpacked
from m2fdp.processes.workers import even_ranges

_NUMBERS = count()


class Piece(NamedTuple):
    """Some blocks of a simulation, as sites know them.

    Attributes:
        simulation: a number that no other simulation of this process has.
    """

    simulation: int
    blocks: range


class Sites(Protocol):
    """Processes, on whatever machines, each with a `Site`."""

    @property
    def count(self) -> int:
        """How many of them compute at a time."""

    def compute(
        self,
        announced: bytes,
        kept: Mapping[Piece, bytes],
        content_of: Callable[[Piece], bytes],
    ) -> Mapping[Piece, bytes]:
        """Have every piece computed by a site (`Site.compute`).

        Args:
            announced: the round's announcement, packed.
            kept: what the learners of each piece keep, packed.
            content_of: makes what a site has to hold to compute a piece.

        Raises:
            SitesLostError: no site is left.
        """


class Site:
    """Who computes some pieces of simulations, in a process of its own."""

    def __init__(self) -> None:
        set_exact_arithmetic()
        self._parts: dict[Piece, tuple[Part, Means]] = {}

    def compute(
        self, piece: Piece, announced: bytes, kept: bytes, content: bytes | None = None
    ) -> bytes:
        """A round of a piece.

        Args:
            announced: the round's announcement, packed.
            kept: what the piece's learners keep, packed.
            content: what has to be held to compute this piece, from now on; None = it is.

        Returns:
            Packed: what each block adds to the cloud's sum, (n, M), and what learners keep.
        """
        if content is not None:
            part, settings = unpacked(content)
            self._parts[piece] = part, build_means(part, settings)
        part, means = self._parts[piece]
        slots = unpacked(kept)
        return packed((run_part(part, means, unpacked(announced), slots, None), slots))


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """The means to have a simulation's blocks computed by sites.

    Attributes:
        executor: the cloud's own means.
        groups: places of each piece's lock-step groups among all, int64 (g,).
    """

    sites: Sites
    executor: Executor
    groups: Mapping[Piece, np.ndarray]

    def compute(self, announced: Announcement, slots: Named) -> None:
        """Have all blocks computed, and put what they add to the cloud's sum, and what learners
        keep, where the cloud has them.

        Raises:
            SitesLostError: no site is left.
        """
        rows = {piece: torch.as_tensor(groups) for piece, groups in self.groups.items()}
        kept = {
            piece: packed({name: of_all[of_piece] for name, of_all in slots.items()})
            for piece, of_piece in rows.items()
        }
        for piece, content in self.sites.compute(packed(announced), kept, self._content).items():
            sums, new_slots = unpacked(content)
            self.executor.sums[piece.blocks.start : piece.blocks.stop] = sums
            for name, of_piece in new_slots.items():
                slots[name][rows[piece]] = of_piece

    def _content(self, piece: Piece) -> bytes:
        """The part of a piece's blocks, and how it is executed."""
        whole, _ = self.executor.whole
        return packed((part_of(whole.simulation, piece.blocks), self.executor.settings))


def build_elsewhere(executor: Executor, sites: Sites) -> Elsewhere:
    """The means to have a simulation's blocks computed by sites, each about as much.

    Raises:
        InputError: the simulation can't be cut into blocks.
    """
    if not executor.in_blocks:
        problem = "computes subtrees apart, and here the cloud has part in every step; use local"
        raise InputError("execution.engine", "ray", problem)
    whole, _ = executor.whole
    number, ranges = next(_NUMBERS), even_ranges(executor.costs, sites.count)
    groups = {Piece(number, blocks): part_of(whole.simulation, blocks).groups for blocks in ranges}
    return Elsewhere(sites, executor, groups)
