"""What is heard of a round, and how a second round is held to what a first one sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Size, Tensor

from m2fdp.core.engine.process import Process, State
from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.core.privacy.taint import windows
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.tiers.split_steps import overheard


class OtherwiseError(Exception):
    """A round does something else than the one before it: not other numbers, but other things."""


@dataclass(frozen=True, eq=False)
class Heard:
    """Something that is heard in a round.

    Attributes:
        what: up, down, step or cloud (see `m2fdp.core.engine.process.Ear`); or, of a device that
            splits its model with a server that nobody trusts, activations or gradients.
        layer: layer of the nodes.
        nodes: int64 (n,), whose models they are.
        models: (n, M), as they go on; activations are (b, M'), a row a record.
    """

    what: str
    layer: int
    nodes: np.ndarray
    models: Tensor

    @property
    def key(self) -> tuple[str, int, tuple[int, ...], Size]:
        """All but the numbers."""
        return self.what, self.layer, tuple(self.nodes.tolist()), self.models.shape


def single_releases(plan: RoundPlan, head_layer: int) -> list[RoundPlan]:
    """For each release of a round by a head, a round that has this release alone."""
    steps = (window.syncs[:-1] for window in windows(plan, head_layer))
    return [replace(plan, layers=(*before, 0)) for before in steps]


@dataclass(frozen=True, eq=False)
class _Listener:
    """An `m2fdp.core.engine.process.Ear`; what `hear` writes into models, the round goes on
    with."""

    hear: Callable[[Heard], None]

    def __call__(self, direction: Literal["up", "down"], layer: int, models: Tensor) -> None:
        self.inside(direction, layer, np.arange(len(models)), models)

    def inside(self, what: str, layer: int, nodes: np.ndarray, models: Tensor) -> None:
        self.hear(Heard(what, layer, nodes, models))

    def host(self, layer: int, device: int, activations: Tensor, gradient: Tensor) -> None:
        """Hand on what a server is sent by a device that splits its model; see `Splitter.host`."""
        nodes = np.array([device])
        self.inside("activations", layer, nodes, activations.flatten(1))
        self.inside("gradients", layer, nodes, gradient[None])


def record(process: Any, state: State, plan: RoundPlan) -> tuple[list[Heard], State]:
    """All that is heard of a round, in copies, and the state after it."""
    heard: list[Heard] = []

    def hear(now: Heard) -> None:
        heard.append(replace(now, models=now.models.clone()))

    return heard, _listened_to(process, hear, state, plan)


def replay(
    process: Any,
    state: State,
    plan: RoundPlan,
    first: Sequence[Heard],
    compare: Callable[[Heard, Heard], None],
) -> State:
    """The state after a round that does what a first one did, or an `OtherwiseError`; `compare` is
    called with what is heard of both at each place, before the round goes on."""
    remaining: Iterator[Heard] = iter(first)

    def hear(now: Heard) -> None:
        before = next(remaining, None)
        if before is None or before.key != now.key:
            raise OtherwiseError
        compare(before, now)

    after = _listened_to(process, hear, state, plan)
    if next(remaining, None) is not None:
        raise OtherwiseError
    return after


def _listened_to(
    process: Any, hear: Callable[[Heard], None], state: State, plan: RoundPlan
) -> State:
    """The state after a round, computed here, where it can be listened to."""
    ear = _Listener(hear)
    host = partial(ear.host, process.simulation.networks[0].tree.depth)
    if isinstance(process, TreeProcess):
        process = replace(process, kind=overheard(process.kind, host))
    listened: Process = process
    return listened.round(state, plan, ear)
