"""A device and a server by themselves, as functions of values: to the byte what the engine makes of
them in a round, and what is written out here."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.builders import experiment_of, last_state
from tests.core.engine.cut_systems import BASE, UPLOAD

from m2fdp.adversaries.heard import heard_by
from m2fdp.core.engine.aggregation import weighed_sum
from m2fdp.core.engine.backends import build_backend
from m2fdp.core.engine.clipping import clip_rows
from m2fdp.core.engine.learner import Clip, StepRules, gradient_step, local_steps
from m2fdp.core.engine.minibatches import Minibatches, minibatch_law, poisson_draw
from m2fdp.core.engine.noise import RoundNoise
from m2fdp.core.engine.rules import GradientStep, ProximalStep, flat_clip
from m2fdp.core.privacy.mechanisms import Clipping
from m2fdp.deployment.rehearsed import as_nodes

SMALL = BASE | {"topology.fanouts": [2, 3], "topology.trust.ratios": [0.0]}
DENSE = {"model.name": "dense"}
SYSTEMS = {
    "noise at every step": {},
    "noise at every step, dense": DENSE,
    "gradients of devices": {"privacy.unit": "device", "privacy.epsilon": 50.0},
    "gradients of devices, dense": DENSE | {"privacy.unit": "device", "privacy.epsilon": 50.0},
    "updates": UPLOAD,
    "updates, dense": UPLOAD | DENSE,
    "updates, whole shards and a trusted server": UPLOAD
    | {"training.batch_size": None, "topology.trust.ratios": [0.5]},
    "updates, a proximal term": UPLOAD | {"training.proximal": 0.5},
    "models": {"privacy.mechanism": "weights"},
    "models, dense": DENSE | {"privacy.mechanism": "weights"},
    "nothing private": {"algorithm": "hfl"},
}


class Nodes:
    """Round t = `number` of a tree of two tiers, each node by itself: with what is public, records
    of its own and draws of its own.

    Attributes:
        take_steps: how a device takes its local steps.
    """

    def __init__(self, experiment, number: int, take_steps) -> None:
        self.simulation, self.number, self.take_steps = experiment.simulation(), number, take_steps
        self.plan = experiment.run_plan.rounds[number - 1]
        self.network, self.mechanism = self.simulation.networks[0], self.simulation.mechanisms[0]

    def add_noise(self, purpose, layer, node, scale, step, vectors) -> None:
        """Add what a node draws for a purpose in a step to a model or message (1, M)."""
        first = tuple(node if at == layer else 0 for at in range(3))
        unit = self.mechanism.noise.scale(self.plan.step_size)
        noise = RoundNoise(self.simulation.randomness.noise, self.number, unit, first)
        only_one = np.zeros(1, dtype=int)
        noise.add(step, purpose, layer, np.array([scale]), vectors, only_one)

    def backend(self):
        """By public sizes and rates."""
        law = minibatch_law(self.mechanism, self.simulation.shards)
        return build_backend(self.simulation.model, "auto", law, torch.device("cpu"))

    def minibatches(self, device, steps):
        shards, streams = self.simulation.shards, self.simulation.randomness.sampling
        first, size = int(shards.sizes[:device].sum()), int(shards.sizes[device])
        records, rate = slice(first, first + size), shards.rates[device]
        features, labels = shards.features[records].clone(), shards.labels[records].clone()
        for step in steps:
            drawn = poisson_draw(np.full(size, rate), streams, self.number, step, first)
            expected = self.mechanism.clipping.divide_by == "expected"
            weights = np.full(len(drawn), 1 / (rate * size if expected else max(len(drawn), 1)))
            yield Minibatches(
                features,
                labels,
                np.append(drawn, 0),
                np.append(weights, 0).astype(np.float32),
                np.array([0, len(drawn)]),
                consecutive=rate == 1,
            )

    def message(self, device, received, steps, top):
        """What a device sends, (1, M), after local steps from the model (1, M) that it received."""
        noise = self.mechanism.noise
        scale = noise.steps[self.mechanism.lock_step.group_of[device]]
        models, minibatches = _as_learner(device, received), list(self.minibatches(device, steps))
        add_noise = partial(self.add_noise, "step-noise", 2, device, scale)
        self.take_steps(self, models, minibatches, steps, add_noise)
        self.add_noise("message-noise", 2, device, noise.sent(top)[2][device], steps[-1], models)
        return models

    def round(self, model):
        """All that travels up, (N_l, M) each, and the global model (M,) after the round."""
        (edge_weights, weights), noise = self.network.weights, self.mechanism.noise
        server_of, heard = self.network.tree.parents[1], []
        received, first = model[None].repeat(2, 1), 1
        for step, top in enumerate(self.plan.layers, start=1):
            if top is None:
                continue
            steps, first = range(first, step + 1), step + 1
            from_servers = [received[server : server + 1] for server in server_of]
            heard.append(
                torch.cat(
                    [self.message(d, start, steps, top) for d, start in enumerate(from_servers)]
                )
            )
            servers = []
            for server in range(2):
                own = server_of == server
                servers.append(_sum_of(heard[-1][own], weights[own]))
                if top == 1:
                    kind, scale = "downlink-noise", noise.broadcasts[1][server]
                else:
                    kind, scale = "message-noise", noise.sent(0)[1][server]
                self.add_noise(kind, 1, server, scale, step, servers[-1])
            received = torch.cat(servers)
        heard.append(received)
        result = _sum_of(received, edge_weights)
        self.add_noise("cloud-noise", 0, 0, noise.messages[0][0], step, result)
        return heard, result[0]


def _as_learner(place, model):
    """A copy of a model (1, M) that begins so many bytes past a multiple of 64 as the model of
    learner `place` does in the engine: kernels round by where matrices lie."""
    numbers = model.shape[1]
    offset = place * numbers % 16
    return torch.empty(1, offset + numbers)[:, offset:].copy_(model)


def _sum_of(messages, weights):
    """A server's sum (1, M) of the messages (n, M) of its children."""
    sums = torch.zeros_like(messages[:1])
    weighed_sum(sums, messages.clone(), torch.as_tensor(weights).to(messages)[:, None])
    return sums


def _by_functions(nodes, models, minibatches, steps, add_noise):
    """A device's steps by functions of its backend, its minibatches and its noise."""
    clip, eta, mu = Clip(nodes.mechanism.clipping), nodes.plan.step_size, nodes.plan.proximal
    backend, rule = nodes.backend(), ProximalStep(mu) if mu else GradientStep()

    def descend(step, batches, models):
        gradient_step(backend, clip, eta, batches, models)

    rules = StepRules(rule, eta, clip, descend, add_noise)
    local_steps(rules, models, models.clone() if mu else None, minibatches, steps[0])


def _written_out(nodes, models, minibatches, steps, add_noise):
    """The same, as the papers have it."""
    clipping, eta, start = nodes.mechanism.clipping, nodes.plan.step_size, models.clone()
    backend = nodes.backend()
    for step, batches in zip(steps, minibatches, strict=True):
        pull = models - start
        if clipping.batch_norm is None:
            backend.add_gradients(models, -eta, models, batches, clipping)
        else:
            gradient = torch.zeros_like(models)
            backend.add_gradients(gradient, 1.0, models.clone(), batches, clipping)
            models.sub_(clip_rows(gradient, clipping.batch_norm, flat_clip), alpha=eta)
        if nodes.plan.proximal:
            models.sub_(pull, alpha=eta * nodes.plan.proximal)
        add_noise(step, models)
    if clipping.update_norm is not None:
        models.copy_(start + clip_rows(models - start, eta * clipping.update_norm, flat_clip))
    if clipping.model_norm is not None:
        clip_rows(models, clipping.model_norm, flat_clip)


@pytest.mark.parametrize("take_steps", [_by_functions, _written_out])
@pytest.mark.parametrize("system", SYSTEMS)
def test_nodes_by_themselves_send_what_the_engine_says(system, take_steps):
    """In the second round, so that nothing begins at zero."""
    experiment = experiment_of(SMALL | SYSTEMS[system])
    process, (first, second), heard = experiment.process(), experiment.run_plan.rounds, []

    def tap(direction, layer, models):
        if direction == "up":
            heard.append(models.clone())

    state = process.round(process.start(), first)
    after = heard_by(process, tap).round(state, second)
    messages, model = Nodes(experiment, 2, take_steps).round(state.weights)
    assert [len(of_layer) for of_layer in messages] == [6, 6, 2]
    assert list(map(_bytes, messages)) == list(map(_bytes, heard))
    assert _bytes(model) == _bytes(after.weights)
    if not process.simulation.mechanisms[0].private:  # else unheard noises are drawn as one
        assert _bytes(model) == _bytes(process.round(state, second).weights)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_step_noise_and_clip_counts(system):
    """What a device sends is another thing without one of its steps, its noise or its clip."""

    def sent(take_steps, **other):
        nodes = Nodes(experiment, 2, take_steps)
        nodes.mechanism = replace(nodes.mechanism, **other)
        return nodes.message(1, model, range(3, 5), 0)

    def without_a_step(nodes, models, minibatches, *others):
        _by_functions(nodes, models, minibatches[:1], *others)

    def without_noise(*given):
        _by_functions(*given[:-1], lambda step, models: None)

    experiment = experiment_of(SMALL | SYSTEMS[system])
    model = experiment.process().start().weights[None] + 0.5
    mechanism = experiment.simulation().mechanisms[0]
    others = [sent(without_a_step)]
    if mechanism.noise.steps.any():
        others.append(sent(without_noise))
    if mechanism.private:
        unclipped = Clipping(mechanism.clipping.divide_by)
        others.append(sent(_by_functions, clipping=unclipped))
    expected = sent(_by_functions)
    assert not any(torch.allclose(other, expected, rtol=1e-4) for other in others)


@pytest.mark.parametrize("inside", [True, False])
def test_noise_comes_right_after_the_gradient_step_or_after_the_rule(inside):
    """A rule that doubles the model after its gradient step, which adds k, in steps 3 and 4 with
    noise 0.25: from 1, (1 + 3 [+ 0.25]) 2 [+ 0.25] and so on; then to norm 2."""

    class Doubling(GradientStep):
        def step(self, models, anchors, eta, descend):
            descend(models)
            models.mul_(2)

    def descend(step, minibatches, models):
        models.add_(minibatches)

    def add_noise(step, models):
        models.add_(0.25)

    batches, norms = [torch.tensor(3.0), torch.tensor(4.0)], Clipping("drawn")
    rules = StepRules(Doubling(), 0.5, Clip(norms), descend, add_noise, inside)
    models = torch.ones(1, 1)
    local_steps(rules, models, None, batches, 3)
    assert models.item() == ((8.5 + 4.25) * 2 if inside else (8.25 + 4) * 2 + 0.25)
    for norms, expected in (
        (Clipping("drawn", update_norm=3.0), 2.5),
        (Clipping("drawn", model_norm=2.0), 2.0),
    ):
        models = torch.ones(1, 1)
        local_steps(replace(rules, clip=Clip(norms)), models, None, batches, 3)
        assert models.item() == expected


def test_a_sum_is_the_same_whether_messages_come_together_or_one_after_the_other():
    generator = torch.Generator().manual_seed(0)
    messages, weights = torch.randn(40, 1000, generator=generator), torch.rand(40, 1)
    parents = torch.randint(3, (40,), generator=generator)
    together, one_by_one = torch.zeros(3, 1000), torch.zeros(3, 1000)
    weighed_sum(together, messages.clone(), weights, parents)
    for message, weight, parent in zip(messages, weights, parents, strict=True):
        own = one_by_one[parent : parent + 1]
        weighed_sum(own, message[None].clone(), weight[None])
    assert _bytes(together) == _bytes(one_by_one)
    exact = torch.zeros(3, 1000, dtype=torch.float64)
    exact.index_add_(0, parents, messages.double() * weights)
    torch.testing.assert_close(together, exact.float())
    alone = torch.ones(1, 1000)
    weighed_sum(alone, messages)
    torch.testing.assert_close(alone, 1 + messages.sum(0, keepdim=True))


def _bytes(values):
    return values.numpy().tobytes()


@pytest.mark.parametrize("unit", ["record", "device"])
def test_the_sum_by_device_is_the_heads_up_to_rounding(unit):
    """Gradients that servers add up by device, in another order."""
    deep = {"topology.fanouts": [1, 2, 2], "topology.trust.ratios": [1.0, 1.0], "threads": 1}
    experiment = experiment_of(deep, {"training.rounds": 2, "privacy.unit": unit})
    assert experiment.calibration.mechanism.lock_step.nodes[:, 0].tolist() == [1]
    ends = []
    for by_device in (False, True):
        process = experiment.process()
        process = as_nodes(process) if by_device else process
        ends.append(last_state(process, experiment.run_plan.rounds, lambda *_: None).weights)
        process.executor.workers.end()
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)
    assert not torch.equal(*ends), "they are added in another order"
