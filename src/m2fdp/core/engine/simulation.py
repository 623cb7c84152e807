"""What is simulated: everything that determines a run's results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from mmap import mmap
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.process import Process, Work
from m2fdp.core.engine.rules import Rules
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.streams import Randomness
from m2fdp.core.topology.network import Network

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Simulation:
    """A run, up to when its rounds happen and how its steps are executed.

    Attributes:
        networks: networks that differ in who takes part only; a round's plan names its own.
        mechanisms: one for each network.
        randomness: its noise must not be that of another simulation, nor of other records.
        parts: what rooms add, at most one of a type; see `part`.
    """

    networks: tuple[Network, ...]
    mechanisms: tuple[Protection, ...]
    model: Model
    shards: Shards
    randomness: Randomness
    rules: Rules = Rules()
    parts: tuple[object, ...] = ()

    def part(self, kind: type[T]) -> T | None:
        """What a room has added of a type; None = nothing."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def having(self, part: object) -> Simulation:
        """The same with a room's part, instead of another of its type."""
        others = (other for other in self.parts if type(other) is not type(part))
        return replace(self, parts=(*others, part))


class Workers(Protocol):
    """Who shares work that writes into memory of theirs; no result depends on how many they are."""

    def share(
        self,
        kind: str,
        costs: np.ndarray,
        work: Work,
        multiple: int = 1,
        fixed: Sequence[object] = (),
    ) -> None:
        """Call `work` with ranges that together are range(n).

        Args:
            kind: names the work.
            costs: float64 (n,), of each item, in any unit.
            multiple: all ranges start at a multiple of it.
            fixed: what `work` refers to and never changes.
        """

    def room(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Memory (rows, columns) that work writes."""

    def end(self) -> None:
        """No more work comes for now."""


class Alone:
    """This process only (`Workers`)."""

    def share(
        self,
        kind: str,
        costs: np.ndarray,
        work: Work,
        multiple: int = 1,
        fixed: Sequence[object] = (),
    ) -> None:
        work(range(len(costs)))

    def room(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        return shared_tensor(rows, columns, dtype)

    def end(self) -> None:
        """Nothing."""


def shared_tensor(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Zeros (rows, columns) that forked processes write for their parent to read.

    They begin at a page, wherever that is: convolutions round by where numbers lie.
    """
    size = rows * columns * torch.empty((), dtype=dtype).element_size()
    return torch.frombuffer(mmap(-1, max(size, 1)), dtype=dtype, count=rows * columns).view(
        rows, columns
    )


class Execution(Protocol):
    """The means that a simulation is executed by."""

    @property
    def workers(self) -> Workers:
        """Who shares the work."""


class SimulationProcess(Process, Protocol):
    """How the rounds of a simulation are computed."""

    @property
    def simulation(self) -> Simulation:
        """What is simulated."""

    @property
    def executor(self) -> Execution:
        """How it is executed."""

    @property
    def draws(self) -> frozenset[str]:
        """Which noises of the mechanisms its rounds draw, by the names of `Noise`."""
