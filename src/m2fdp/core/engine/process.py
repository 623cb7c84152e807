"""What is simulated, and how its rounds are computed: a state goes in, a state comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from mmap import mmap
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.rules import Named, Rules
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Randomness
from m2fdp.core.topology.network import Network

T = TypeVar("T")
# Does some items of a piece of work.
Work: TypeAlias = Callable[[range], None]


@dataclass(frozen=True, eq=False)
class Slots:
    """Tensors that rules keep from round to round: the server rule's, such as moments, and the
    local rule's (G, M), row g at the head of lock-step group g."""

    server: Named = field(default_factory=dict)
    device: Named = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands after so many rounds: the global model (M,), and what rules keep. With the
    configuration it is all there is to know."""

    round: int
    weights: Tensor
    slots: Slots = Slots()


class SitesLostError(RuntimeError):
    """Nobody is left who computes rounds; the state before the round is still good."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A run, but for when its rounds happen and how its steps are executed."""

    networks: tuple[Network, ...]  # they differ only in who takes part; a round's plan numbers them
    mechanisms: tuple[Protection, ...]  # one for each network
    model: Model
    shards: Shards
    randomness: Randomness  # another simulation's noise must not be equal
    rules: Rules = Rules()
    parts: tuple[object, ...] = ()  # what rooms add, at most one of a type

    def part(self, kind: type[T]) -> T | None:
        """The part of a type that a room has added, or None."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def having(self, part: object) -> Simulation:
        """The simulation with a room's part, which replaces another of its type."""
        others = (other for other in self.parts if type(other) is not type(part))
        return replace(self, parts=(*others, part))


class Workers(Protocol):
    """Processes that share work, and the memory that it writes; no result depends on their number.
    The methods' bodies are for this process alone."""

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
            kind: name of the work.
            costs: float64 (n,), of each item, in any unit.
            multiple: number such that all ranges start at a multiple of it.
            fixed: objects that `work` refers to and never changes.
        """
        work(range(len(costs)))

    def room(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Memory (rows, columns) that work writes."""
        return shared_tensor(rows, columns, dtype)

    def end(self) -> None:
        """No more work comes for now."""
        return


class Alone(Workers):
    """This process only."""


def shared_tensor(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Zeros (rows, columns), from the start of a page on, that forked processes write for their
    parent: where rows lie decides how sums round."""
    memory = mmap(-1, max(rows * columns * dtype.itemsize, 1))
    return torch.frombuffer(memory, dtype=dtype, count=rows * columns).view(rows, columns)


class Execution(Protocol):
    """What a simulation is executed by."""

    @property
    def workers(self) -> Workers:
        """Who shares the work."""


class Process(Protocol):
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

    def start(self) -> State:
        """w^(1), before the first round."""

    def round(self, state: State, plan: RoundPlan) -> State:
        """The state after one more round.

        Raises:
            SitesLostError: nobody is left who computes rounds.
        """
