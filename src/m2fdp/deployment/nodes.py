"""What each node does with a question: devices step, servers ask and add up. No network here.

The equations are the simulator's own (`m2fdp.core.engine.learner`, `aggregation`), on one model; so
a run of nodes whose draws repeat ends in the bytes of a simulated one, in which every message has a
noise of its own and servers add up gradients by device.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.aggregation import weighed_sum
from m2fdp.core.engine.backends import Backend, build_backend
from m2fdp.core.engine.execution import ALIGNED_ROWS
from m2fdp.core.engine.learner import StepRules, Units, gradient_step, local_steps, unit_gradients
from m2fdp.core.engine.minibatches import (
    Learners,
    Minibatches,
    Shards,
    draw_minibatches,
    minibatch_law,
)
from m2fdp.core.engine.noise import RoundNoise
from m2fdp.core.engine.process import shared_tensor
from m2fdp.core.engine.rules import refuse_too_long
from m2fdp.core.privacy.mechanisms import LockStep, Protection
from m2fdp.core.streams import Randomness
from m2fdp.deployment.keys import Identity
from m2fdp.deployment.links import Answer, Links, Place, Question, Reply, from_bytes, to_bytes
from m2fdp.deployment.masked import Asking, MaskingChild, masked_sum
from m2fdp.deployment.node_plan import (
    ONE_ROW,
    ChildrenError,
    Keeper,
    NodePlan,
    message_noise,
    new_seed,
    spans,
)
from m2fdp.secure_aggregation.messages import BelowThreshold, ProtocolError


class Device:
    """A device with its records, (D, C, H, W) and int64 (D,), and where the seed of its draws is
    kept."""

    def __init__(self, node: NodePlan, features: Tensor, labels: Tensor, keeper: Keeper) -> None:
        self.node, self._keeper = node, keeper
        experiment, mechanism = node.recomputed.experiment, node.mechanism
        sizes, rates = experiment.samples.sizes, experiment.sampling_rates
        j = node.index
        self._shards = Shards(features, labels, sizes[j : j + 1], rates[j : j + 1])
        self._first_record = int(sizes[:j].sum())
        everybody = Shards(features, labels, sizes, rates)
        law, factor = minibatch_law(mechanism, everybody), experiment.plan.rules.clip_factor
        how = experiment.config.training.backend, law, features.device, factor
        self._backend: Backend = build_backend(experiment.model, *how)
        self._keyed = experiment.model.draws
        lock_step, self._head = mechanism.lock_step, np.array([[node.depth, 0]])
        alone = LockStep(self._head, ONE_ROW, lock_step.weights[j : j + 1])
        self._protection: Protection = replace(mechanism, lock_step=alone)
        shared = node.gives == "gradient" and mechanism.clipping.batch_norm is not None
        self._share = lock_step.weights[j : j + 1] if shared else np.ones(1)
        # Convolutions round by where their filters lie: as in the simulator's memory.
        groups = lock_step.nodes[lock_step.group_of[:j], 0]
        self._row = int((groups == node.depth).sum()) % ALIGNED_ROWS
        self._room = shared_tensor(ALIGNED_ROWS, experiment.model.n_parameters, torch.float32)

    def compute(self, question: Question) -> Tensor:
        """What it sends, (1, M)."""
        if question.place.kind == "gradient":
            (batches,) = self._minibatches(question.place, self._draws(question))
            units = Units(ONE_ROW, self._share)
            vector = question.vector.clone()
            return unit_gradients(self._backend, self.node.clip(), batches, vector, units)
        vector, noise = self.message(question)
        return vector.add_(noise)

    def message(self, question: Question) -> tuple[Tensor, Tensor]:
        """The model (1, M) that the question's steps end in here, and what is added to it before
        it is sent. A `TooLongError` says that a noised model is too long to go on."""
        place, draws = question.place, self._draws(question)
        models = self._room[self._row : self._row + 1]
        models.copy_(question.vector)
        node, noise = self.node, self.node.noise(draws, place.round)
        rule, deviation = node.local_rule(place.round), np.array([node.deviations.step])
        eta = node.step_size(place.round)

        def add_noise(step: int, models: Tensor) -> None:
            noise.add(step, "step-noise", node.depth, deviation, models, ONE_ROW)

        def descend(step: int, batches: Minibatches, models: Tensor) -> None:
            gradient_step(self._backend, node.clip(), eta, batches, models)

        longest = node.recomputed.experiment.rules.longest(eta)
        rules = StepRules(rule, eta, node.clip(), descend, add_noise, longest=longest)
        anchors = question.vector if rule.anchored else None
        local_steps(rules, models, anchors, self._minibatches(place, draws), place.first)
        vector = models.clone()
        return vector, message_noise(node, noise, place, vector)

    def _draws(self, question: Question) -> Randomness:
        """The same whenever the question is asked."""
        return self.node.randomness(self._keeper.seed(question))

    def _minibatches(self, place: Place, draws: Randomness) -> Sequence[Minibatches]:
        steps = len(self.node.rounds[place.round - 1].layers)
        alone = np.ones(1, dtype=bool)
        learners = Learners(
            alone, ONE_ROW, self._head, {self.node.depth: range(1)}, ONE_ROW, ONE_ROW, np.ones(1)
        )
        where = place.round, [alone] * steps, self._first_record, self._keyed
        drawn = draw_minibatches(learners, self._protection, self._shards, draws.sampling, *where)
        return drawn[place.first - 1 : place.last]


class Server:
    """A server above others, or above devices; the cloud is one, too. It raises `ChildrenError`
    where a child refuses, and `TooLongError` where a model that it has noised is too long to go on.
    Noised models are kept before children read them: a server that is started again hands down the
    same bytes. `on_missing` is told of a child that is done without."""

    def __init__(
        self, node: NodePlan, links: Links, keeper: Keeper, on_missing: Callable[[str], None]
    ) -> None:
        self.node, self.links, self.keeper, self._on_missing = node, links, keeper, on_missing

    def compute(self, question: Question) -> Tensor:
        """What it sends, (1, M)."""
        if question.place.kind == "gradient":
            return self._added_up(question, None)
        vector, noise = self.message(question)
        return vector.add_(noise)

    def message(self, question: Question) -> tuple[Tensor, Tensor]:
        """The model (1, M) that the question's steps end in here, and what is added to it before
        it is sent."""
        vector, round_ = self._result(question), question.place.round
        return vector, message_noise(self.node, self._noise(round_), question.place, vector)

    def broadcast(self, question: Question) -> Tensor:
        """What the cloud makes of a round, (1, M), with its own noise: kept before it is looked at,
        so that a run which ends by it ends so again."""
        place, deviation = question.place, self.node.deviations.broadcast
        make = partial(self._result, question)
        return self._noised(place, (place.last, "broadcast", "cloud-noise"), deviation, make)

    def _result(self, question: Question) -> Tensor:
        node, place, vector = self.node, question.place, question.vector
        if node.is_head:
            for step in range(place.first, place.last + 1):
                make = partial(self._stepped, question, step, vector)
                at = step, f"down-{step}", "step-noise"
                vector = self._noised(place, at, node.deviations.step, make)
            return vector
        layers = node.rounds[place.round - 1].layers
        for first, last in spans(layers, place.first, place.last, node.layer):
            asked = question.of(Place(place.round, first, last, "model"), vector)
            make = partial(self._added_up, asked, node.weights)
            deviation = node.deviations.broadcast if last < place.last else 0.0
            vector = self._noised(place, (last, f"down-{last}", "downlink-noise"), deviation, make)
        return vector

    def _stepped(self, question: Question, step: int, before: Tensor) -> Tensor:
        """Its model after a local step that its devices descend for it."""
        node, round_, model = self.node, question.place.round, before.clone()
        eta, rule = node.step_size(round_), node.local_rule(round_)
        longest = node.recomputed.experiment.rules.longest(eta)
        refuse_too_long(float(model.double().norm()), longest, eta, "before a local step")

        def descend(models: Tensor) -> None:
            at = Place(round_, step, step, "gradient")
            models.add_(self._added_up(question.of(at, models.clone()), None), alpha=-eta)

        rule.step(model, question.vector if rule.anchored else None, eta, descend)
        return model

    def _noised(
        self, place: Place, at: tuple[int, str, str], deviation: float, make: Callable[[], Tensor]
    ) -> Tensor:
        """A model (1, M) with noise, kept before anybody reads it; `at`: step, name, purpose."""
        step, name, purpose = at
        kept = self.keeper.kept(place.round, name) if deviation else None
        if kept is not None:
            return from_bytes(kept)
        model, scales = make(), np.array([deviation])
        if deviation:
            self._noise(place.round).add(step, purpose, self.node.layer, scales, model, ONE_ROW)
            self.keeper.keep(place.round, name, to_bytes(model))
        return model

    def _noise(self, round_: int) -> RoundNoise:
        """New draws at each call: a noised model is kept before anything follows from it."""
        return self.node.noise(self.node.randomness(new_seed()), round_)

    def _added_up(self, question: Question, weights: Tensor | None) -> Tensor:
        """The children's answers (1, M), weighed and added in the tree's order, or their sum."""
        total = torch.zeros_like(question.vector)
        if self.node.adds_masked:
            total.add_(question.vector)
            asking = Asking(self.node, self.links, question, self.keeper, self._on_missing)
            try:
                total.add_(masked_sum(asking))
            except BelowThreshold as lost:  # the run goes on as if nobody had moved
                self._on_missing(f"the sum of {lost.alive} senders")
            except ProtocolError as error:
                if self.node.recomputed.settings.on_missing != "skip":
                    raise ChildrenError(f"the sum of {self.node.name}: {error}") from None
                self._on_missing(f"the sum ({error})")
            return total
        lacking = 0.0
        for number, reply in enumerate(self.links.ask([question] * len(self.node.children))):
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
        if not isinstance(reply, Answer):
            self._on_missing(self.node.without(reply))
            return None
        vector = reply.vector
        if vector.shape != question.vector.shape or not vector.isfinite().all():
            raise ChildrenError("a child's answer is no vector of finite numbers of the model")
        return vector


def answering(
    node: NodePlan, identity: Identity, worker: Device | Server, keeper: Keeper
) -> Callable[[Question], bytes]:
    """What a node answers with: its message, or the steps of a sum that hides it."""
    if node.masked:
        return MaskingChild(node, identity, worker.message, keeper).answer
    return lambda question: to_bytes(worker.compute(question))
