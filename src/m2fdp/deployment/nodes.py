"""What each node does with a question: devices step, servers ask and add up. No network here.

The equations are the simulator's own (`m2fdp.simulation.learner`, `server_sums`), on one model; so
a run of nodes whose draws repeat ends in the bytes of a simulated one, in which every message has a
noise of its own and servers add up gradients by device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.deployment.entropy import CipherStreams
from m2fdp.deployment.links import Kind, Links, Missing, Place, Question, Refusal, Reply
from m2fdp.deployment.plan import Deviations, PublicPlan, Recomputed
from m2fdp.errors import InputError
from m2fdp.privacy.mechanisms import LockStep, Protection
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.simulation.backends import Backend, build_backend
from m2fdp.simulation.executor import ALIGNED_ROWS
from m2fdp.simulation.learner import (
    Clip,
    StepRules,
    Units,
    gradient_step,
    local_steps,
    unit_gradients,
)
from m2fdp.simulation.learners import Learners, draw_minibatches, minibatch_law
from m2fdp.simulation.local_rules import LocalRule, ProximalStep
from m2fdp.simulation.minibatches import Minibatches, Shards
from m2fdp.simulation.noise import RoundNoise
from m2fdp.simulation.server_sums import weighed_sum
from m2fdp.simulation.workers import shared_tensor
from m2fdp.streams import KeyedStreams, Randomness

_ONE = np.zeros(1, dtype=np.int64)


class RefusedError(Exception):
    """A node does not answer; the text is its reason."""


class ChildrenError(Exception):
    """A child has refused, or is missed, so that there is nothing to answer."""


@dataclass(frozen=True, eq=False)
class NodePlan:
    """What one node must know.

    Attributes:
        plan: the signed one.
        recomputed: the run as this node has computed it.
        layer, index: its place in the tree.
    """

    plan: PublicPlan
    recomputed: Recomputed
    name: str
    layer: int
    index: int

    @property
    def depth(self) -> int:
        """L."""
        return self.recomputed.network.tree.depth

    @property
    def parent(self) -> str | None:
        """By name; None for the cloud."""
        tree = self.recomputed.network.tree
        if self.layer == 0:
            return None
        return tree.names[self.layer - 1][tree.parents[self.layer - 1][self.index]]

    @cached_property
    def children(self) -> tuple[str, ...]:
        """By name, in the tree's order."""
        tree = self.recomputed.network.tree
        if self.layer == self.depth:
            return ()
        found = np.flatnonzero(tree.parents[self.layer] == self.index)
        return tuple(tree.names[self.layer + 1][child] for child in found)

    @cached_property
    def weights(self) -> Tensor:
        """rho of the children, float32 (n, 1, 1)."""
        network = self.recomputed.network
        rho = network.weights[self.layer][network.tree.parents[self.layer] == self.index]
        return torch.as_tensor(rho).to(torch.float32)[:, None, None]

    @property
    def mechanism(self) -> Protection:
        """What is clipped and noised."""
        return self.recomputed.experiment.calibration.mechanism

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """t = 1…T."""
        return self.recomputed.experiment.run_plan.rounds[: self.recomputed.rounds]

    @cached_property
    def deviations(self) -> Deviations:
        """The noise that it adds."""
        return self.plan.deviations(self.name)

    @cached_property
    def is_head(self) -> bool:
        """Whether it steps for all devices below it, or, of a device, for itself."""
        heads = self.mechanism.lock_step.nodes
        return bool((heads == (self.layer, self.index)).all(axis=1).any())

    @cached_property
    def gives(self) -> Kind:
        """What its parent asks it for."""
        tree, heads = self.recomputed.network.tree, self.mechanism.lock_step
        below = tree.ancestors[self.layer] == self.index
        (head_layer,) = np.unique(heads.nodes[heads.group_of[below], 0].min())
        return "gradient" if head_layer < self.layer else "model"

    def places(self, round_: int) -> tuple[Place, ...]:
        """All questions of a round that the plan has for it, in order."""
        layers = self.rounds[round_ - 1].layers
        if self.gives == "gradient":
            return tuple(Place(round_, k, k, "gradient") for k in range(1, len(layers) + 1))
        asked_by = self.layer - 1
        return tuple(
            Place(round_, *span, "model") for span in spans(layers, 1, len(layers), asked_by)
        )

    def top(self, place: Place) -> int | None:
        """The layer that models travel up to after a question's steps; None = they do not."""
        return self.rounds[place.round - 1].layers[place.last - 1]

    def step_size(self, round_: int) -> float:
        """eta^t."""
        return self.rounds[round_ - 1].step_size

    def randomness(self) -> Randomness:
        """Entropy; in a rehearsal the simulator's own draws."""
        config, release = self.recomputed.experiment.config, self.plan.release
        if release is None:
            return Randomness(CipherStreams(), CipherStreams())
        return Randomness(KeyedStreams(config.seed), KeyedStreams(config.seed, release))

    def noise(self, streams: Randomness, round_: int) -> RoundNoise:
        """Its draws of a round."""
        scale = self.mechanism.noise.scale(self.step_size(round_))
        # As the first node of a part of the tree, it has its own place in the streams.
        return RoundNoise(streams.noise, round_, scale, (self.index,) * (self.depth + 1))

    def local_rule(self, round_: int) -> LocalRule:
        """One local step."""
        rule, mu = self.recomputed.experiment.plan.rules.local, self.rounds[round_ - 1].proximal
        return ProximalStep(mu, rule) if mu else rule

    def clip(self) -> Clip:
        """What bounds gradients, updates and models."""
        experiment, norms = self.recomputed.experiment, self.mechanism.clipping
        layers = experiment.model.layers if norms.by_layer else None
        return Clip(norms, layers, experiment.plan.rules.clip_factor)


def node_plan(plan: PublicPlan, recomputed: Recomputed, name: str) -> NodePlan:
    """What a node must know.

    Raises:
        InputError: the plan has no such node.
    """
    for layer, names in enumerate(recomputed.network.tree.names):
        if name in names:
            return NodePlan(plan, recomputed, name, layer, names.index(name))
    every = [name for names in recomputed.network.tree.names for name in names]
    raise InputError("--as", name, f"is no node of the plan; it has {', '.join(every[:12])}")


def spans(
    layers: Sequence[int | None], first: int, last: int, layer: int
) -> Iterator[tuple[int, int]]:
    """Steps `first` to `last`, cut where models travel up to a layer or further."""
    for step in range(first, last + 1):
        top = layers[step - 1]
        if step == last or (top is not None and top <= layer):
            yield first, step
            first = step + 1


def sent(node: NodePlan, noise: RoundNoise, place: Place, vector: Tensor) -> Tensor:
    """A message (1, M) as it leaves a node, with its noise."""
    added = node.deviations.sent(node.top(place))
    drawn = torch.zeros_like(vector)
    noise.add(place.last, "message-noise", node.layer, np.array([added]), drawn, _ONE)
    return vector.add_(drawn)


class Device:
    """A device with its records.

    Args:
        features: (D, C, H, W).
        labels: int64 (D,).
    """

    def __init__(self, node: NodePlan, features: Tensor, labels: Tensor) -> None:
        self.node = node
        self._streams = node.randomness()
        experiment, mechanism = node.recomputed.experiment, node.mechanism
        sizes, rates = experiment.samples.sizes, experiment.sampling_rates
        j = node.index
        self._shards = Shards(features, labels, sizes[j : j + 1], rates[j : j + 1])
        self._first_record = int(sizes[:j].sum())
        everybody = Shards(features, labels, sizes, rates)
        self._backend: Backend = build_backend(
            experiment.model,
            experiment.config.training.backend,
            minibatch_law(mechanism, everybody),
            features.device,
            experiment.plan.rules.clip_factor,
        )
        lock_step = mechanism.lock_step
        self._protection = Protection(
            mechanism.clipping,
            LockStep(np.array([[node.depth, 0]]), _ONE, lock_step.weights[j : j + 1]),
            mechanism.noise,
            mechanism.private,
        )
        shared = node.gives == "gradient" and mechanism.clipping.batch_norm is not None
        self._share = lock_step.weights[j : j + 1] if shared else np.ones(1)
        # Convolutions round by where their filters lie: as in the simulator's memory.
        groups = lock_step.nodes[lock_step.group_of[:j], 0]
        self._row = int((groups == node.depth).sum()) % ALIGNED_ROWS
        self._room = shared_tensor(ALIGNED_ROWS, experiment.model.n_parameters, torch.float32)

    def compute(self, question: Question) -> Tensor:
        """What it sends, (1, M)."""
        place = question.place
        batches = self._minibatches(place)
        if place.kind == "gradient":
            units = Units(_ONE, self._share)
            vector = question.vector.clone()
            return unit_gradients(self._backend, self.node.clip(), batches[0], vector, units)
        models = self._room[self._row : self._row + 1]
        models.copy_(question.vector)
        node, noise = self.node, self.node.noise(self._streams, place.round)
        rule, deviation = node.local_rule(place.round), np.array([node.deviations.step])

        def add_noise(step: int, models: Tensor) -> None:
            noise.add(step, "step-noise", node.depth, deviation, models, _ONE)

        rules = StepRules(
            rule,
            node.step_size(place.round),
            node.clip(),
            partial(self._descend, node.step_size(place.round)),
            add_noise,
        )
        anchors = question.vector if rule.anchored else None
        local_steps(rules, models, anchors, batches, place.first)
        return sent(node, noise, place, models.clone())

    def _descend(self, eta: float, step: int, batches: Minibatches, models: Tensor) -> None:
        gradient_step(self._backend, self.node.clip(), eta, batches, models)

    def _minibatches(self, place: Place) -> Sequence[Minibatches]:
        """Those of the question's steps."""
        steps = len(self.node.rounds[place.round - 1].layers)
        learners = Learners(
            np.ones(1, dtype=bool),
            _ONE,
            np.array([[self.node.depth, 0]]),
            {self.node.depth: range(1)},
            _ONE,
            _ONE,
            np.ones(1),
        )
        drawn = draw_minibatches(
            learners,
            self._protection,
            self._shards,
            self._streams.sampling,
            place.round,
            [learners.present] * steps,
            self._first_record,
        )
        return drawn[place.first - 1 : place.last]


class Keeper:
    """What a server keeps before its children read it; a subclass keeps it on a disk."""

    def kept(self, round_: int, step: int) -> Tensor | None:
        """The model (1, M) that was handed down after a step, if there is one."""
        return None

    def keep(self, round_: int, step: int, vector: Tensor) -> None:
        """Keep it, before it is handed down."""


class Server:
    """A server above others, or above devices; the cloud is one, too.

    Args:
        keeper: where noised models are kept before children read them: a server that is started
            again hands down the same bytes.
        on_missing: what to call with the name of a child that is done without.
    """

    def __init__(
        self,
        node: NodePlan,
        links: Links,
        keeper: Keeper | None = None,
        on_missing: Callable[[str], None] = lambda child: None,
    ) -> None:
        self.node, self.links, self._on_missing = node, links, on_missing
        self._keeper = keeper or Keeper()
        self._streams = node.randomness()

    def compute(self, question: Question) -> Tensor:
        """What it sends, (1, M).

        Raises:
            ChildrenError: a child refuses.
        """
        if question.place.kind == "gradient":
            return self._added_up(question, None)
        vector = self.result(question)
        noise = self.node.noise(self._streams, question.place.round)
        return sent(self.node, noise, question.place, vector)

    def result(self, question: Question) -> Tensor:
        """The model (1, M) that the question's steps end in here, before it is sent."""
        if self.node.is_head:
            return self._stepped(question)
        node, place, vector = self.node, question.place, question.vector
        layers = node.rounds[place.round - 1].layers
        noise, deviation = node.noise(self._streams, place.round), node.deviations.broadcast
        for first, last in spans(layers, place.first, place.last, node.layer):
            kept = self._keeper.kept(place.round, last)
            if kept is not None:
                vector = kept
                continue
            asked = question.of(Place(place.round, first, last, "model"), vector)
            vector = self._added_up(asked, node.weights)
            if last < place.last and deviation:
                scales = np.array([deviation])
                noise.add(last, "downlink-noise", node.layer, scales, vector, _ONE)
                self._keeper.keep(place.round, last, vector)
        return vector

    def _stepped(self, question: Question) -> Tensor:
        """Its model after local steps that its devices descend for it, each noised here."""
        node, place, vector = self.node, question.place, question.vector.clone()
        eta, rule = node.step_size(place.round), node.local_rule(place.round)
        noise, deviation = node.noise(self._streams, place.round), np.array([node.deviations.step])
        anchors = question.vector if rule.anchored else None
        for step in range(place.first, place.last + 1):
            kept = self._keeper.kept(place.round, step)
            if kept is not None:
                vector = kept
                continue

            def descend(models: Tensor, step: int = step) -> None:
                at = Place(place.round, step, step, "gradient")
                total = self._added_up(question.of(at, models.clone()), None)
                models.add_(total, alpha=-eta)

            rule.step(vector, anchors, eta, descend)
            if node.deviations.step:
                noise.add(step, "step-noise", node.layer, deviation, vector, _ONE)
                self._keeper.keep(place.round, step, vector)
        return vector

    def _added_up(self, question: Question, weights: Tensor | None) -> Tensor:
        """The children's answers, weighed and added in the tree's order as they come, (1, M)."""
        total = torch.zeros_like(question.vector)
        lacking = 0.0
        for number, reply in enumerate(self.links.ask(question)):
            weight = None if weights is None else weights[number]
            vector = self._vector(question, reply)
            if vector is not None:
                weighed_sum(total, vector, weight)
            elif weight is not None:
                lacking += float(weight)
        if lacking:  # of a child that is missing the update is zero
            total.add_(question.vector, alpha=lacking)
        return total

    def _vector(self, question: Question, reply: Reply) -> Tensor | None:
        if isinstance(reply, Refusal):
            raise ChildrenError(str(reply))
        if isinstance(reply, Missing):
            self._on_missing(reply.node)
            return None
        vector = reply.vector
        if vector.shape != question.vector.shape or not vector.isfinite().all():
            raise ChildrenError("a child's answer is no vector of finite numbers of the model")
        return vector


def final_noise(node: NodePlan, streams: Randomness, round_: int, vector: Tensor) -> Tensor:
    """The cloud's own noise on what it broadcasts at a round's end."""
    steps = len(node.rounds[round_ - 1].layers)
    scales = np.array([node.deviations.broadcast])
    node.noise(streams, round_).add(steps, "cloud-noise", 0, scales, vector, _ONE)
    return vector
