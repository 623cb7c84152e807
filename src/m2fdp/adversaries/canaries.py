"""The audited system: copies of one head's subtree, every other one with a canary record.

What happens elsewhere in the network reaches a subtree only through noised broadcasts, which
are public. So many copies of the subtree below one parent are as many repetitions in one
simulation, and the engine clips, noises and aggregates them as it does any network. Where the head
is the cloud, the copies are of the whole tree, below a root that hears what each cloud broadcasts.
Where heads' messages are read as sums only, the copies are of all that is below one reader, which
sends on what it reads.

The losses attain the worst case that `m2fdp.core.privacy.taint` allows. They may depend on what is
public, the last noised broadcast, as composition allows for every adaptively chosen step:
a filler record pushes its device's model one way while the model carries no mark, and the
opposite way as soon as it does; the canary pushes the opposite way and leaves the mark. Where a
proximal term fades marks, fillers renew those that they find.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.core.config import PrivacyConfig, less_later
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.process import Simulation
from m2fdp.core.engine.rules import Rules, TakeAggregate, keeping
from m2fdp.core.engine.tree_process import TreeProcess, build_process
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.calibration import CalibratedMechanism
from m2fdp.core.privacy.mechanisms import LockStep, Protection, get_mechanism
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.sight import BESIDE, NOBODY
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import Randomness, seeded
from m2fdp.core.topology.network import Network, heads_of
from m2fdp.core.topology.tree import Tree

# Kinds of records.
ABSENT, CANARY, FILLER, OPPOSITE = range(4)
_KINDS = 4
# Fillers expected in a minibatch; without any, a step moves nothing.
_EXPECTED_FILLERS = 4
# Gradient norms over the clipping norm, far beyond it; one canary outweighs all fillers.
_FILLER_SIZE, _CANARY_SIZE = 10.0, 1e7
# The same of a filler whose step is not clipped, but the model that it ends in: it crosses the ball
# from wherever noise has put the model that the device received.
_FAR = 1e5
# The part of a canary's step that marks the model, and what counts as a mark, over eta·G:
# averages over a subtree leave more, rounding leaves less.
_MARK, _LEAST_MARK = 1e-2, 1e-8


@dataclass(frozen=True, eq=False)
class Canaries:
    """A simulation to audit. Whoever runs its rounds keeps `public`, `origin` and `parts` up to
    date, for the losses.

    Attributes:
        process: the copies, in float64.
        plans: the rounds t = 1…T.
        plan: the first of them, as the audited run has it.
        public: float64 (N_L, M), the model each device last received that is public.
        origin: float64 (M,), the model that the round began with.
        parts: float64 (K,), of the way from there to `origin` a proximal term has gone after
            k = 0…K-1 steps. Zeros, unless it is centred at `origin`.
        head_layer: the layer, among the copies, whose nodes are their heads.
        present: bool (copies,), whether a copy has the canary.
        audited: int64 (copies,), the audited devices.
        scale: noise and shifts over the configured mechanism's.
        share: the weight of the head's message in what the copies release.
    """

    process: TreeProcess
    plans: tuple[RoundPlan, ...]
    plan: RoundPlan
    public: Tensor
    origin: Tensor
    parts: Tensor
    head_layer: int
    present: np.ndarray
    audited: np.ndarray
    scale: float
    share: float


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """What is audited: of shards of int64 (N_L,) records, by rules with which the copies step and
    clip. What the server makes of an aggregate is no part of what an observer of a head is sent.
    """

    network: Network
    mechanism: CalibratedMechanism
    schedule: Schedule
    privacy: PrivacyConfig
    shard_sizes: np.ndarray
    rules: Rules = Rules()


def plant(
    run: AuditedRun, position: Position, copies: int, seed: int, earlier: int = 0
) -> Canaries:
    """Copies of the subtree of a position's first device, half of them with a canary, and with
    draws by how many copies there were earlier.

    Clipping, noise and sampling rate are the configured mechanism's. The audited shard has
    only as many records as the worst case needs; where clipped sums are divided by q·D, noise
    grows as the divisor shrinks. All other devices use whole shards of one filler.
    """
    network, mechanism, schedule, privacy = run.network, run.mechanism, run.schedule, run.privacy
    plan = schedule.round_plans()[0]
    device = position.members[0]
    layer, head = heads_of(network)[device].tolist()
    share = 1.0
    if position.summed:
        reader = network.sums.reader_layer(layer)
        share = float(network.shares(layer, reader)[head])
        layer, head = reader, int(network.tree.ancestors_of(layer, reader)[head])
    if layer == 0:  # below a root, which the cloud sends what it broadcasts
        local = {at + 1: every for at, every in schedule.local_aggregation.items()}
        schedule = replace(schedule, local_aggregation=local)
    ranges = network.tree.below(layer, range(head, head + 1))
    audited = np.arange(copies) * len(ranges[-1]) + (device - ranges[-1].start)
    whole = privacy.unit == "device"
    by_record = mechanism.clipping.divide_by == "expected"
    rate = 1.0 if whole else position.sampling_rate
    fillers = 0 if whole or by_record else ceil(_EXPECTED_FILLERS / rate)
    present = np.arange(copies) % 2 == 1
    copied = _copied_network(network, layer, ranges, copies)
    # Only between noised releases can others' steps follow a canary's.
    configured = get_mechanism(privacy.mechanism)
    active = not by_record and not configured.noises_every_step
    marked = active and not mechanism.clipping.of_models
    other = FILLER if active else ABSENT
    records = np.full((copies, 1 + fillers), other)
    replaced = OPPOSITE if privacy.adjacency == "replace_one" else ABSENT
    records[:, 0] = np.where(present, CANARY, replaced)
    shards = _shards(copied.tree.n_devices, audited, records, other, rate)
    public = torch.zeros(len(shards.sizes), 2 if marked else 1, dtype=torch.float64)
    origin = public[0].clone()
    drawn_away = bool(plan.pull) and plan.center == "global"
    parts = torch.zeros(len(plan.layers) if drawn_away else 1, dtype=torch.float64)
    scale = float(run.shard_sizes[device]) if by_record else 1.0
    norm = privacy.clipping_norm
    least = _LEAST_MARK * schedule.learning_rate * norm
    marks = _Marks(public, origin, parts, least, renewed=bool(plan.pull))
    filler = _FAR if mechanism.clipping.of_models else _FILLER_SIZE
    simulation = Simulation(
        (copied,),
        (_copied_mechanism(mechanism, ranges, copies, scale),),
        _model(norm, marks, outweigh=not by_record, filler=filler),
        shards,
        _randomness(privacy, position, seed, earlier),
        # What a server makes of reports comes down to the devices' next steps.
        run.rules if keeping(run.rules.local) else replace(run.rules, server=TakeAggregate()),
    )
    process = build_process(simulation, ExecutionSettings(chunk_size=8192))
    plans = schedule.round_plans()
    return Canaries(
        process, plans, plan, public, origin, parts, max(layer, 1), present, audited, scale, share
    )


def _randomness(privacy: PrivacyConfig, position: Position, seed: int, earlier: int) -> Randomness:
    # Keys that came later count where they are used, as everywhere.
    said = less_later(privacy.model_dump(), privacy, PrivacyConfig(), "privacy.")
    configured = " ".join(f"{name}={value!r}" for name, value in said.items())
    text = f"audit of {_key(position)} under {configured}"
    if not earlier:
        return seeded(seed, text.encode())
    # Minibatches are keyed by the seed alone, and are not to be those of the first copies.
    keyed = seeded(seed, f"{text} after {earlier} copies".encode()).noise
    return Randomness(keyed, keyed)


def _key(position: Position) -> str:
    """The text that keys a position's draws: with the words of version 0.1, whose audits repeat."""
    facts = {
        "members": position.members,
        "head_layer": position.head_layer,
        "is_device": position.is_device,
        "shares": position.shares,
        "sampling_rate": position.sampling_rate,
        "unit": position.unit,
        "noise": position.noise,
        "crowd": position.mean[NOBODY],
        "crowd_without_one": position.mean[BESIDE] if position.has_siblings else None,
        "parent_is_cloud": position.parent_is_cloud,
        "parent_is_trusted": position.parent_is_trusted,
    }
    return f"Position({', '.join(f'{name}={fact!r}' for name, fact in facts.items())})"


@dataclass(frozen=True, eq=False)
class _Marks:
    """How losses know a model that depends on a canary: by a mark of some size at least, which
    fillers may renew. Models (see `Canaries`) without a second parameter carry none."""

    public: Tensor
    origin: Tensor
    parts: Tensor
    least_mark: float
    renewed: bool

    def moved(self, models: Tensor, owners: Tensor) -> Tensor:
        """Whether models (n, 2) carry a mark: are far from all that they may be without one."""
        received = self.public[owners, 1, None]
        unmarked = received + self.parts * (self.origin[1] - received)
        return (models[:, 1, None] - unmarked).abs().amin(1) > self.least_mark


def _model(norm: float, marks: _Marks, outweigh: bool, filler: float) -> Model:
    """A linear map of the constant feature 1: scores are the parameters (x, mark), or x alone."""
    width, size = marks.public.shape[1], _CANARY_SIZE if outweigh else _FILLER_SIZE

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        kinds, owners = labels % _KINDS, labels // _KINDS
        models = scores.detach()
        push = torch.zeros_like(models)
        push[:, 0] = (kinds == FILLER) * filler
        if width > 1:
            moved = marks.moved(models, owners)
            push[:, 0] = torch.where(moved, -push[:, 0], push[:, 0])
            if marks.renewed:
                push[:, 1] = torch.where(moved, push[:, 0] * _MARK, push[:, 1])
        sign = (kinds == CANARY) * 1.0 - (kinds == OPPOSITE) * 1.0
        push[:, 0] -= sign * size
        if width > 1:
            push[:, 1] -= sign * size * _MARK
        return (scores * push * norm).sum(-1)

    layer = nn.Linear(1, width, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    return Model("canary", nn.Sequential(nn.Flatten(), layer), loss, linear=True)


def _shards(
    devices: int, audited: np.ndarray, records: np.ndarray, other: int, rate: float
) -> Shards:
    """Records whose labels name their kind and their device. The audited devices have kinds int64
    (copies, n), drawn at the rate. Each other device has one record, which is always drawn."""
    sizes, rates = np.ones(devices, dtype=np.int64), np.ones(devices)
    sizes[audited], rates[audited] = records.shape[1], rate
    owners = np.repeat(np.arange(devices), sizes)
    kinds = np.full(len(owners), other)
    kinds[np.isin(owners, audited)] = records.ravel()
    features = torch.ones(len(owners), 1, 1, 1, dtype=torch.float64)
    return Shards(features, torch.as_tensor(kinds + owners * _KINDS), sizes, rates)


def _copied_network(network: Network, layer: int, ranges: list[range], copies: int) -> Network:
    """One untrusted server a layer down to the heads' parent, or to an untrusted root above clouds
    that are heads; then the copies of layer and all below it, as they are."""
    top = max(layer, 1)
    path = [np.zeros(1, dtype=np.int64) for _ in range(1, top)]
    of_copies: list[np.ndarray] = []
    for (upper, nodes), parents_of in zip(
        pairwise(ranges), network.tree.parents[layer:], strict=True
    ):
        local = parents_of[nodes.start : nodes.stop] - upper.start
        of_copies.append((local + np.arange(copies)[:, None] * len(upper)).ravel())
    parents = (*path, np.zeros(copies, dtype=np.int64), *of_copies)
    counts = [1, *(len(p) for p in parents)]
    names = tuple(tuple(f"{at}-{i}" for i in range(n)) for at, n in enumerate(counts))
    tree = Tree(parents, names)
    trust = tuple(np.full(counts[at], at >= top) for at in range(tree.depth))
    # Heads that are devices are the copies: all of them take part.
    participants = network.participants if layer < network.tree.depth else None
    noise = (*(np.zeros(1) for _ in range(top)), *_tiled(network.noise[layer:], ranges, copies))
    rho = None
    if network.rho is not None:
        path_and_heads = [np.full(n, 1 / n) for n in counts[1 : top + 1]]
        rho = (*path_and_heads, *_tiled(network.rho[layer:], ranges[1:], copies))
    lower = top - layer
    layers = frozenset(at + lower for at in network.sums.layers if at > layer)
    sums = replace(network.sums, layers=layers, cloud=network.sums.cloud + lower)
    return Network(tree, trust, noise, participants, rho, sums)


def _tiled(
    values: Sequence[np.ndarray], ranges: Sequence[range], copies: int
) -> tuple[np.ndarray, ...]:
    """Of each layer's values those of the subtree's nodes, once a copy."""
    return tuple(
        np.tile(of_layer[nodes.start : nodes.stop], copies)
        for of_layer, nodes in zip(values, ranges, strict=False)
    )


def _copied_mechanism(
    mechanism: Protection, ranges: list[range], copies: int, scale: float
) -> Protection:
    """The subtree's part of the mechanism, for every copy."""
    lock_step, noise = mechanism.lock_step, mechanism.noise
    layer = len(noise.messages) - len(ranges)
    top = max(layer, 1)

    def tiled(deviations: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        of_copies = _tiled(deviations[layer:], ranges, copies)
        return (*[np.zeros(1)] * top, *(of_layer * scale for of_layer in of_copies))

    devices = ranges[-1]
    groups, local = np.unique(lock_step.group_of[devices.start : devices.stop], return_inverse=True)
    layers, indices = lock_step.nodes[groups].T
    lengths = np.array([len(ranges[at - layer]) for at in layers])
    in_copy = indices - np.array([ranges[at - layer].start for at in layers])
    repeat = np.arange(copies)[:, None]
    below_root = np.tile(layers + (top - layer), copies)
    nodes = np.stack([below_root, (in_copy + repeat * lengths).ravel()], axis=1)
    local_messages = None if noise.local_messages is None else tiled(noise.local_messages)
    return Protection(
        mechanism.clipping,
        LockStep(
            nodes,
            (local + repeat * len(groups)).ravel(),
            np.tile(lock_step.weights[devices.start : devices.stop], copies),
        ),
        replace(
            noise,
            steps=np.tile(noise.steps[groups], copies) * scale,
            heads=tiled(noise.heads),
            messages=tiled(noise.messages),
            broadcasts=tiled(noise.broadcasts),
            local_messages=local_messages,
            clients=None,
        ),
        mechanism.private,
    )
