"""How one round is computed: a state goes in, a state comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from m2fdp.core.schedule.rounds import RoundPlan

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

# Called with what travels, for somebody who listens: the direction, the layer l of the senders,
# and the models (N_l, M) as they are sent.
Tap: TypeAlias = "Callable[[Literal['up', 'down'], int, Tensor], None]"


@runtime_checkable
class Ear(Protocol):
    """A tap that hears, besides messages, what is noised where no message is sent."""

    def __call__(self, direction: Literal["up", "down"], layer: int, models: Tensor) -> None:
        """See `Tap`."""

    def inside(
        self, what: Literal["step", "cloud"], layer: int, nodes: np.ndarray, models: Tensor
    ) -> None:
        """Hear the models (n, M) of nodes int64 (n,) of a layer: learners', after a local step and
        its noise, or the cloud's, after its noise and before its server rule. What is written into
        them is what the round goes on with."""


# Does some items of a piece of work.
Work: TypeAlias = "Callable[[range], None]"
# What somebody keeps, or sends beside a model, by name.
Named: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True, eq=False)
class Slots:
    """What rules keep from round to round, besides the global model.

    Attributes:
        server: the server rule's, such as moments.
        device: the local rule's, (G, M) each: row g is what the head of lock-step group g keeps.
    """

    server: Named = field(default_factory=dict)
    device: Named = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands between two rounds; with the configuration, all there is to know.

    Attributes:
        round: how many rounds are finished.
        weights: the global model, (M,).
        slots: what rules keep from round to round.
    """

    round: int
    weights: Tensor
    slots: Slots = Slots()


class SitesLostError(RuntimeError):
    """Nobody is left who computes rounds; the state before the round is as good as ever."""


class Process(Protocol):
    """How the rounds of a run are computed."""

    def start(self) -> State:
        """w^(1), before the first round."""

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """The state after one more round.

        Args:
            plan: this round's.
            tap: hears every message, if it is given. The two rounds are then equal in
                distribution, not to the bit.

        Raises:
            SitesLostError: where others compute rounds, none of them is left.
        """


def run_rounds(
    process: Process, plans: Sequence[RoundPlan], state: State | None = None
) -> Iterator[State]:
    """The states after each of the planned rounds t = 1…T that are left, in order, from the given
    state or the start."""
    state = process.start() if state is None else state
    for plan in plans[state.round :]:
        state = process.round(state, plan)
        yield state
