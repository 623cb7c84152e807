"""What a node knows of a run, of its own place in it, and of what it has kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Protocol, cast

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

from m2fdp.core.engine.learner import Clip
from m2fdp.core.engine.noise import RoundNoise
from m2fdp.core.engine.rules import LocalRule, ProximalStep
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import some_of
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import KeyedStreams, Randomness
from m2fdp.deployment.links import STEPS, Kind, Missing, Place, Question, Refusal
from m2fdp.deployment.masked_messages import OF_SENDER
from m2fdp.deployment.plan import Deviations, PublicPlan, Recomputed

# The row of the one model that a node has.
ONE_ROW = np.zeros(1, dtype=np.int64)


class RefusedError(Exception):
    """A node does not answer; the text is its reason."""


class ChildrenError(Exception):
    """A child has refused, or is missed, so that there is nothing to answer."""


@dataclass(frozen=True, eq=False)
class NodePlan:
    """What one node must know: the signed plan, the run as it has computed it, and its place."""

    plan: PublicPlan
    recomputed: Recomputed
    name: str
    layer: int
    index: int

    @property
    def depth(self) -> int:
        return self.recomputed.network.tree.depth

    @property
    def parent(self) -> str | None:
        """By name; None for the cloud."""
        tree = self.recomputed.network.tree
        if self.layer == 0:
            return None
        return tree.names[self.layer - 1][tree.parents[self.layer - 1][self.index]]

    @cached_property
    def members(self) -> np.ndarray:
        """Its children, by index in the tree's order: int64 (n,)."""
        parents = self.recomputed.network.tree.parents
        return np.flatnonzero(parents[self.layer] == self.index)

    @cached_property
    def children(self) -> tuple[str, ...]:
        """By name, in the tree's order."""
        if self.layer == self.depth:
            return ()
        names = self.recomputed.network.tree.names[self.layer + 1]
        return tuple(names[child] for child in self.members)

    @cached_property
    def siblings(self) -> np.ndarray:
        """Its parent's children, itself among them, by index: int64 (n,)."""
        parents = self.recomputed.network.tree.parents[self.layer - 1]
        return np.flatnonzero(parents == parents[self.index])

    @cached_property
    def weights(self) -> Tensor:
        """rho of the children, float32 (n, 1, 1)."""
        rho = self.recomputed.network.weights[self.layer][self.members]
        return torch.as_tensor(rho).to(torch.float32)[:, None, None]

    @property
    def masked(self) -> bool:
        """Whether its models are read as a part of a sum only."""
        return self.layer in self.recomputed.network.sums.layers

    @property
    def adds_masked(self) -> bool:
        """Whether it reads its children's models as a sum only."""
        return self.layer + 1 in self.recomputed.network.sums.layers

    def most_bytes(self, layer: int, senders: np.ndarray) -> int:
        """The most bytes of a question or an answer between siblings of a layer and their parent.

        That is a model, or of each sender what a step of their sum needs.
        """
        model = 4 * self.recomputed.experiment.model.n_parameters
        sums = self.recomputed.network.sums.layers
        return max(model, len(senders) * OF_SENDER if layer in sums else 0)

    def without(self, reply: Refusal | Missing) -> str:
        """Who is done without, and why; a `ChildrenError` where the plan does without nobody who
        refuses."""
        if isinstance(reply, Missing):
            return reply.node
        if self.recomputed.settings.on_missing != "skip":
            raise ChildrenError(str(reply))
        return f"{reply.node} ({reply.reason})"

    @property
    def mechanism(self) -> Protection:
        return self.recomputed.experiment.calibration.mechanism

    @property
    def begins(self) -> int:
        """Its first round; those before it are another plan's."""
        return 1 if self.plan.continues is None else self.plan.continues[1] + 1

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        return self.recomputed.experiment.run_plan.rounds[: self.recomputed.rounds]

    @cached_property
    def deviations(self) -> Deviations:
        return self.plan.deviations(self.name)

    def adds(self, place: Place, child: str | None = None) -> float:
        """The deviation of the noise in an answer that is this node's own, or a child's; of several
        local steps, of each."""
        noise = self.plan.deviations(child or self.name)
        return (noise.step or noise.sent(self.top(place))) if place.gives else 0.0

    @cached_property
    def is_head(self) -> bool:
        """Whether it steps for all devices below it, or, of a device, for itself."""
        heads = self.mechanism.lock_step.nodes
        return bool((heads == (self.layer, self.index)).all(axis=1).any())

    @cached_property
    def gives(self) -> Kind:
        heads = self.mechanism.lock_step
        below = self.recomputed.network.tree.ancestors[self.layer] == self.index
        return "gradient" if heads.nodes[heads.group_of[below], 0].min() < self.layer else "model"

    def places(self, round_: int) -> tuple[Place, ...]:
        """All questions of a round that the plan has for it, in order."""
        layers = self.rounds[round_ - 1].layers
        if self.gives == "gradient":
            return tuple(Place(round_, k, k, "gradient") for k in range(1, len(layers) + 1))
        kinds: Sequence[Kind] = STEPS if self.masked else ("model",)
        asked = spans(layers, 1, len(layers), self.layer - 1)
        return tuple(Place(round_, *span, kind) for span in asked for kind in kinds)

    def top(self, place: Place) -> int | None:
        """The layer that models travel up to after a question's steps; None = they do not."""
        return self.rounds[place.round - 1].layers[place.last - 1]

    def step_size(self, round_: int) -> float:
        return self.rounds[round_ - 1].step_size

    def longest(self, place: Place) -> float:
        """The length that the model of a question may have: as the cloud looks at a round's first
        one, and at those in between where every step is noised, or all that they follow from.
        Others hold what no noise covers, of which a refusal would tell."""
        experiment, eta = self.recomputed.experiment, self.step_size(place.round)
        longest = experiment.rules.longest(eta)
        if place.first == 1:
            return min(experiment.longest(eta), longest)
        sender = self.rounds[place.round - 1].layers[place.first - 2]
        if sender is None or not self._is_covered(sender):
            return longest
        return min(experiment.rules.longest_received(eta), longest)

    def _is_covered(self, layer: int) -> bool:
        """Whether what its ancestor at a layer broadcasts follows from noised models alone."""
        if layer >= self.layer:
            return False
        tree = self.recomputed.network.tree
        ancestor = tree.ancestors_of(self.layer, layer)[self.index]
        return bool(self.mechanism.noise.covers(tree, layer)[ancestor])

    def randomness(self, seed: bytes) -> Randomness:
        """What follows from 256 bits of entropy; in a rehearsal the simulator's own draws."""
        config, release = self.recomputed.experiment.config, self.plan.release
        if release is None:
            return Randomness(CipherStreams(seed), CipherStreams(seed))
        return Randomness(KeyedStreams(config.seed), KeyedStreams(config.seed, release))

    def noise(self, streams: Randomness, round_: int) -> RoundNoise:
        scale = self.mechanism.noise.scale(self.step_size(round_))
        # As the first node of a part of the tree, it has its own place in the streams.
        return RoundNoise(streams.noise, round_, scale, (self.index,) * (self.depth + 1))

    def local_rule(self, round_: int) -> LocalRule:
        rule, mu = self.recomputed.experiment.plan.rules.local, self.rounds[round_ - 1].proximal
        return ProximalStep(mu, rule) if mu else rule

    def clip(self) -> Clip:
        """What bounds gradients, updates and models."""
        experiment, norms = self.recomputed.experiment, self.mechanism.clipping
        layers = experiment.model.layers if norms.by_layer else None
        return Clip(norms, layers, experiment.plan.rules.clip_factor)


def node_plan(plan: PublicPlan, recomputed: Recomputed, name: str) -> NodePlan:
    """What a node of the plan must know."""
    for layer, names in enumerate(recomputed.network.tree.names):
        if name in names:
            return NodePlan(plan, recomputed, name, layer, names.index(name))
    every = [name for names in recomputed.network.tree.names for name in names]
    raise InputError("--as", name, f"is no node of the plan; it has {some_of(every)}")


def message_noise(node: NodePlan, noise: RoundNoise, place: Place, like: Tensor) -> Tensor:
    """What a node adds to a message (1, M) as it leaves it."""
    added = node.deviations.sent(node.top(place))
    drawn = torch.zeros_like(like)
    noise.add(place.last, "message-noise", node.layer, np.array([added]), drawn, ONE_ROW)
    return drawn


def spans(
    layers: Sequence[int | None], first: int, last: int, layer: int
) -> Iterator[tuple[int, int]]:
    """Steps `first` to `last`, cut where models travel up to a layer or further."""
    for step in range(first, last + 1):
        top = layers[step - 1]
        if step == last or (top is not None and top <= layer):
            yield first, step
            first = step + 1


class Keeper(Protocol):
    """What a node keeps of a round before others read what follows from it."""

    def kept(self, round_: int, what: str) -> bytes | None:
        """What was kept under a name in a round, if there is something."""

    def keep(self, round_: int, what: str, content: bytes, waits: bool = True) -> None:
        """Keep it, and nothing of other rounds; where it waits it is safe when this returns, else
        once the node's answer is."""

    def seal(self) -> None:
        """Make safe what children have said so far."""

    def entropy(self, round_: int, name: str, waits: bool = True) -> bytes:
        """256 bits of a name in a round: those that were kept, or new ones, which then are."""
        seed = self.kept(round_, name)
        if seed is None:
            seed = new_seed()
            self.keep(round_, name, seed, waits)
        return seed

    def seed(self, question: Question) -> bytes:
        """What all draws for a question are made of: entropy that is safe before anything is drawn,
        so that a device that is started again draws the same, and for any other question other
        numbers."""
        seed = self.entropy(question.place.round, "seed")
        return blake2b(question.digest, digest_size=_KEY_BYTES, key=seed).digest()


_WORD = 8
_KEY_BYTES = 32


def new_seed() -> bytes:
    """256 bits of the operating system's entropy."""
    return os.urandom(_KEY_BYTES)


def keystream(key: bytes) -> Callable[[int], bytes]:
    """ChaCha20's stream of a key of 256 bits: a function that gives the next so many bytes."""
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return lambda size: cipher.update(bytes(size))


@dataclass(frozen=True)
class CipherStreams:
    """Streams that nobody but who has the seed can foresee (`m2fdp.core.streams.Streams`).

    Each is ChaCha20's keystream. BLAKE2b makes its key, 256 bits, of the stream's name and of the
    seed, 256 bits of the operating system's entropy. Who tells it from random words breaks one of
    the two. That the least digits of floats may tell something of what they are added to
    (Mironov 2012) is not met here.
    """

    seed: bytes = field(repr=False)

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """The same stream whenever it is asked for by the same name."""
        name = "|".join((purpose, *map(str, indices)))
        key = blake2b(name.encode(), digest_size=_KEY_BYTES, key=self.seed).digest()
        return cast(np.random.Generator, _Keystream(key))


class _Keystream:
    """What the library asks of a generator and of its bits."""

    def __init__(self, key: bytes) -> None:
        self._next = keystream(key)

    @property
    def bit_generator(self) -> _Keystream:
        return self

    def advance(self, delta: int) -> None:
        """Nothing: a place in a stream matters where others draw from it, too."""

    def random_raw(self, size: int) -> np.ndarray:
        """The next words, uint64 (size,)."""
        return np.frombuffer(self._next(_WORD * size), np.uint64)

    def random(self, size: int) -> np.ndarray:
        """Uniform numbers in [0, 1), float64 (size,), as NumPy makes them of words."""
        return (self.random_raw(size) >> np.uint64(11)) * 2.0**-53
