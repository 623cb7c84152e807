"""How one round is computed: a state goes in, a state comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from m2fdp.core.schedule.rounds import RoundPlan

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

# A listener, called with the direction, the layer l of the senders, and the models (N_l, M) sent.
Tap: TypeAlias = "Callable[[Literal['up', 'down'], int, Tensor], None]"


@runtime_checkable
class Ear(Protocol):
    """A tap that hears also models that are noised and not sent."""

    def __call__(self, direction: Literal["up", "down"], layer: int, models: Tensor) -> None:
        """See `Tap`."""

    def inside(
        self, what: Literal["step", "cloud"], layer: int, nodes: np.ndarray, models: Tensor
    ) -> None:
        """Hear the models (n, M) of nodes int64 (n,) of a layer: of learners after a noised step,
        or of the cloud before its server rule. The listener may write into them."""


# Does some items of a piece of work.
Work: TypeAlias = "Callable[[range], None]"
# What somebody keeps, or sends beside a model, by name.
Named: TypeAlias = "Mapping[str, Tensor]"


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


class Process(Protocol):
    """How the rounds of a run are computed."""

    def start(self) -> State:
        """w^(1), before the first round."""

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """The state after one more round; a tap that hears it changes the draws, not their law.

        Raises:
            SitesLostError: nobody is left who computes rounds.
        """


def run_rounds(
    process: Process, plans: Sequence[RoundPlan], state: State | None = None
) -> Iterator[State]:
    """The states after the planned rounds t = 1…T that are left, from a state or the start."""
    state = process.start() if state is None else state
    for plan in plans[state.round :]:
        state = process.round(state, plan)
        yield state
