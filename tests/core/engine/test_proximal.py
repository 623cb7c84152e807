"""The proximal term in the rounds: by hand, against a plain loop, on all backends."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.builders import one_record_each, process_of, quadratic, without_noise
from tests.core.engine.parts import (
    RAGGED,
    make_shards,
    mechanism_for,
    plan_of,
    run_plan,
    schedule,
    silent,
)

from m2fdp.adversaries.heard import heard_by
from m2fdp.core.engine.rules import Rules
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import seeded
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.trust import explicit_trust
from m2fdp.given.edges import tree_from_edges

MIDDLES = [0.0, 8, 16, 32, 64]
CENTERS = ["received", "global"]


def hand_system():
    """Device j's loss is (w - c_j)^2/2."""
    middles = torch.tensor(MIDDLES, dtype=torch.float64)
    return *without_noise(tree_from_edges(RAGGED)), one_record_each(middles.view(5, 1, 1, 1))


def double(model):
    model.module.double()
    return model


def looped(tree, weights, layers, eta, mu, center, start):
    """The round of G Alg. 1 device by device, in plain numbers."""
    devices = range(len(MIDDLES))
    models = [start for _ in devices]
    received = list(models)
    for top in layers:
        pulls = [models[j] - (start if center == "global" else received[j]) for j in devices]
        models = [models[j] - eta * (models[j] - MIDDLES[j]) - eta * mu * pulls[j] for j in devices]
        if top is None:
            continue
        messages = np.array(models)
        for layer in range(tree.depth, top, -1):
            parents = tree.parents[layer - 1]
            messages = np.bincount(parents, weights=weights[layer - 1] * messages)
        models = [float(messages[tree.ancestors[top][j]]) for j in devices]
        received = list(models)
    return models[0]


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize(
    "layers", [(None, 2, None, 1, 2, 0), (1, None, None, 0), (None,) * 3 + (0,)]
)
def test_rounds_on_a_ragged_tree_are_those_of_a_plain_loop(center, layers):
    network, mechanism, shards = hand_system()
    plan = RoundPlan(layers, 0.25, proximal=1.6, center=center)
    process = process_of(network, mechanism, double(quadratic()), shards, seeded(0, b"test"))
    state, expected = process.start(), 0.0
    for _ in range(3):
        state = process.round(state, plan)
        expected = looped(network.tree, network.weights, layers, 0.25, 1.6, center, expected)
        assert state.weights.item() == pytest.approx(expected, rel=1e-12)
    # And centres matter where models are received in between.
    other = [c for c in CENTERS if c != center][0]
    other_center = looped(network.tree, network.weights, layers, 0.25, 1.6, other, 0.0)
    first = looped(network.tree, network.weights, layers, 0.25, 1.6, center, 0.0)
    assert (other_center == pytest.approx(first)) == all(top is None for top in layers[:-1])


def trusted_system(layers):
    """One trusted edge server, which steps together with its three devices, one that is not."""
    tree = tree_from_fanouts([2, 3])
    trust = explicit_trust(tree, ["server-1-1"])
    shards = make_shards([8] * 6, dtype=torch.float64)
    plan = plan_of("m2fdp", tree, trust, schedule(1, len(layers), {1: 2}))
    return plan, silent(mechanism_for(plan, shards)), shards


@pytest.mark.parametrize("center", CENTERS)
def test_a_lock_step_group_is_centred_at_what_its_head_received(softmax, center):
    """Local aggregations inside the group are nothing to it: its centre stays the round's first
    model, whatever `center` says, while devices below the other server get new centres."""
    layers = (None, 1, None, 0)
    plan, mechanism, shards = trusted_system(layers)
    rounds = RoundPlan(layers, 0.5, proximal=0.8, center=center)
    snapshots = []

    def tap(direction, layer, models):
        if direction == "up" and layer == 1:
            snapshots.append(models.clone())

    process = process_of(plan.network, mechanism, softmax, shards, seeded(0, b"test"))
    heard_by(process, tap).round(process.start(), rounds)
    w = start = process.start().weights
    for _ in layers:
        w = w - 0.5 * mean_gradient(softmax, w, shards, slice(0, 24)) - 0.4 * (w - start)
    torch.testing.assert_close(snapshots[-1][0], w, rtol=1e-6, atol=1e-7)
    received = start.expand(3, -1).clone()
    models = received.clone()
    for step, top in enumerate(layers):
        slices = [slice(8 * j, 8 * j + 8) for j in (3, 4, 5)]
        center_of_step = start if center == "global" else received
        models = torch.stack(
            [
                m - 0.5 * mean_gradient(softmax, m, shards, s)
                for m, s in zip(models, slices, strict=True)
            ]
        ) - 0.4 * (models - center_of_step)
        if top == 1:
            models = received = models.mean(0).expand(3, -1).clone()
        assert step < len(layers)
    torch.testing.assert_close(snapshots[-1][1], models.mean(0), rtol=1e-6, atol=1e-7)


def mean_gradient(model, vector, shards, part):
    leaf = vector.clone().requires_grad_()
    scores = model.scores(leaf, shards.features[part])
    model.loss(scores, shards.labels[part]).mean().backward()
    return leaf.grad


@pytest.mark.parametrize("name", ["gradient", "upload"])
def test_backends_agree(softmax, name):
    """Tiles and processes do to the byte, in test_subtrees."""
    tree = tree_from_fanouts([2, 3])
    trust = explicit_trust(tree, ["server-1-1"])
    planned = replace(schedule(2, 4, {1: 2}), proximal=0.7, center="global")
    plan = plan_of("m2fdp", tree, trust, planned)
    shards = make_shards([12] * 6, rate=0.5, dtype=torch.float64)
    mechanism = mechanism_for(plan, shards, name)
    reference, *others = (
        run_plan(plan, mechanism, softmax, shards, backend=backend)
        for backend in ("reference", "sequential", "stacked")
    )
    for other in others:
        torch.testing.assert_close(other, reference, rtol=1e-9, atol=1e-11)


def test_a_rule_of_ones_own_is_pulled_too():
    """It halves steps here; the pull is towards the centre from where the step began."""

    class Half:
        anchored = False

        def step(self, models, anchors, eta, descend):
            assert anchors is None
            before = models.clone()
            descend(models)
            models.add_(before).mul_(0.5)

    network, mechanism, shards = hand_system()
    process = process_of(
        network, mechanism, double(quadratic()), shards, seeded(0, b"t"), Rules(local=Half())
    )
    plan = RoundPlan((None, 0), 0.5, proximal=0.4)
    weight = process.round(process.start(), plan).weights.item()
    # w -> w - (w - c)/4 - 0.2 w: c/4, then 0.55 c/4 + c/4.
    mean = float(np.dot([1 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 4], MIDDLES))
    assert weight == pytest.approx(1.55 * mean / 4, rel=1e-12)
