"""A run whose lines are tried, the neighbours that it is tried on, and what is heard of a round.
A second run is held to what the first one sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Size, Tensor

from m2fdp.adversaries.heard import heard_by
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.engine.minibatches import Shards, draw_participants, poisson_draw
from m2fdp.core.engine.process import Simulation, State
from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.taint import windows
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network
from m2fdp.tiers.split_noise import exposed_splits
from m2fdp.tiers.split_steps import overheard

How = Literal["removed", "added", "replaced"]
# Rounding, over a model's length and the resolution of its numbers.
_ROUNDING = 100.0


@dataclass(frozen=True, eq=False)
class Neighbour:
    """What two neighbouring data sets differ in: records of a device, at int64 (n,) places among
    all; in labels, unless these are public and stay."""

    device: int
    places: np.ndarray
    how: How
    labels_stay: bool = False


def neighbouring(
    shards: Shards, neighbour: Neighbour, stream: np.random.Generator
) -> tuple[Shards, Shards]:
    """Two neighbouring sets of records: as the devices hold them, or, if one is added, without it;
    and the other. Who is added, or replaces somebody, is as bright, as dark or as motley as any."""
    if neighbour.how == "removed":
        return shards, replace(shards, absent=neighbour.places)
    rows = torch.as_tensor(neighbour.places, device=shards.features.device)
    features, labels = shards.features.clone(), shards.labels.clone()
    low, high = float(features.min()), float(features.max())
    bright = stream.random((len(rows), *features.shape[1:])) < stream.choice([0.0, 0.5, 1.0])
    features[rows] = torch.as_tensor(np.where(bright, high, low)).to(features)
    if not neighbour.labels_stay:
        # Of numbers an end of their range, which is farthest from the others.
        ends = [-1.0, 1.0] if labels.is_floating_point() else int(labels.max()) + 1
        labels[rows] = torch.as_tensor(stream.choice(ends, size=len(rows))).to(labels)
    changed = replace(shards, features=features, labels=labels)
    if neighbour.how == "replaced":
        return shards, changed
    return replace(changed, absent=neighbour.places), changed


@dataclass(frozen=True, eq=False)
class TriedRun:
    """A run whose lines are tried.

    Attributes:
        simulation: the run's own, with draws that repeat.
        plans: the rounds that are tried, as they are trained.
        rounds: how many the ledger's lines count.
        build: makes the `Process` of a simulation.
        behind: the run's ledger, were its noise of other deviations; by layer, as `build_ledger`
            takes them.
        worlds: makes of the records two neighbouring sets of them.
    """

    simulation: Simulation
    ledger: Ledger
    privacy: PrivacyConfig
    plans: Sequence[RoundPlan]
    rounds: int
    build: Callable[[Simulation], Any]
    behind: Callable[[Sequence[np.ndarray]], Ledger]
    worlds: Callable[[Shards, Neighbour, np.random.Generator], tuple[Shards, Shards]] = neighbouring

    @property
    def network(self) -> Network:
        return self.simulation.networks[0]

    @property
    def protection(self) -> Protection:
        return self.simulation.mechanisms[0]

    def splits(self, device: int) -> bool:
        """Whether a device noises the parts of a split model that it sends."""
        return bool(exposed_splits(self.network)[device])

    def present(self, number: int) -> np.ndarray:
        """The devices that take part in a round t: bool (N_L,)."""
        return draw_participants(self.network, self.simulation.randomness.sampling, number)

    @property
    def grain(self) -> float:
        """What rounding moves a model of length 1 by, at most."""
        return _ROUNDING * torch.finfo(self.simulation.shards.features.dtype).eps


def draw_neighbour(
    run: TriedRun, position: Position, number: int, stream: np.random.Generator
) -> Neighbour | None:
    """A neighbour at a position whose record is drawn in round t = `number`, if any of its device's
    is; None where none of the devices that take part has one."""
    shards, present = run.simulation.shards, run.present(number)
    able = [j for j in position.members if present[j] and shards.sizes[j]]
    if not able:
        return None
    device = able[int(stream.integers(len(able)))]
    first = int(shards.sizes[:device].sum())
    places = np.arange(first, first + int(shards.sizes[device]))
    if run.privacy.unit == "record":
        rates = np.repeat(shards.rates * present, shards.sizes)
        steps = range(1, len(run.plans[number - 1].layers) + 1)
        sampling = run.simulation.randomness.sampling
        drawn = np.concatenate([poisson_draw(rates, sampling, number, step) for step in steps])
        among = np.intersect1d(places, drawn)
        places = stream.choice(among if len(among) else places, 1)
    if run.splits(device) or run.ledger.adjacency == "replace_one":
        return Neighbour(device, places, "replaced", labels_stay=run.splits(device))
    return Neighbour(device, places, "removed" if stream.random() < 0.5 else "added")


class OtherwiseError(Exception):
    """A round does something else than the one before it: not other numbers, but other things."""


@dataclass(frozen=True, eq=False)
class Heard:
    """Something that is heard in a round.

    Attributes:
        what: up, down, step or cloud (see `m2fdp.adversaries.heard`); or, of a device that
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
    """A tap, and what listens `inside`; what `hear` writes into models, the round goes on with."""

    hear: Callable[[Heard], None]

    def __call__(self, direction: Literal["up", "down"], layer: int, models: Tensor) -> None:
        self.inside(direction, layer, np.arange(len(models)), models)

    def inside(self, what: str, layer: int, nodes: np.ndarray, models: Tensor) -> None:
        self.hear(Heard(what, layer, nodes, models))

    def host(self, layer: int, device: int, activations: Tensor, gradient: Tensor) -> None:
        """Hand on what a server is sent by a device that splits its model; see `Splitter.host`."""
        self.inside("activations", layer, np.array([device]), activations.flatten(1))
        self.inside("gradients", layer, np.array([device]), gradient[None])


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
    return heard_by(process, ear, ear.inside).round(state, plan)
