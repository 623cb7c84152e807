"""Devices that join by chance, and updates over public numbers (H Alg. 1), by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.builders import one_record_each, quadratic
from tests.core.engine.parts import (
    make_shards,
    mechanism_for,
    noise_alone,
    plan_of,
    run,
    run_plan,
    schedule,
)

from m2fdp.core.config import PrivacyConfig, ThreatConfig
from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.privacy.calibration import no_privacy
from m2fdp.core.privacy.mechanisms import Clipping
from m2fdp.core.streams import KeyedStreams, seeded
from m2fdp.core.topology.network import Participation
from m2fdp.core.topology.trust import draw_trust
from m2fdp.given.edges import tree_from_edges

# Two layers of servers, ragged; server B2 has one device, which often stays away.
EDGES = [("c", "A"), ("c", "B"), ("A", "A1"), ("A", "A2"), ("B", "B1"), ("B", "B2")]
EDGES += [("A1", "0"), ("A1", "1"), ("A1", "2"), ("A2", "3"), ("A2", "4"), ("B1", "5")]
EDGES += [("B1", "6"), ("B1", "7"), ("B2", "8")]
TREE = tree_from_edges(EDGES)
TARGETS = np.array([1.0, -2.0, 3.0, 0.5, 4.0, -1.0, 2.0, 5.0, -3.0])
CAPS = np.array([1.0, 0.5, 0.2, 1.0, 0.7, 0.3, 1.0, 1.0, 0.4])


def shards_of(targets):
    return one_record_each(torch.as_tensor(targets, dtype=torch.float64).view(-1, 1, 1, 1))


def clipping_alone(plan, clip):
    """A mechanism without noise, that clips updates."""
    plans = plan.schedule.round_plans()
    mechanism = no_privacy(plan.network, plans, PrivacyConfig(), ThreatConfig())
    return replace(mechanism, clipping=Clipping("drawn", update_norm=clip))


def by_hand(schedule, participation, clip=np.inf):
    """The final model of devices that descend (w - c)^2/2, by loops over the names of the tree."""
    eta, q = schedule.learning_rate, participation.rate
    children = {}
    for parent, child in EDGES:
        children.setdefault(parent, []).append(child)
    network = plan_of("hfl", TREE, None, schedule, participation=participation).network
    theta = 0.0
    for round_ in range(1, schedule.rounds + 1):
        present = draw_participants(network, KeyedStreams(0), round_)
        handed = {name: theta for name in children}
        models = {str(j): theta for j in range(9)}

        def gather(server, models=models, handed=handed, present=present):
            if children[server][0] in children:
                values = [gather(child) for child in children[server]]
                return sum(values) / len(values)
            mine = [int(child) for child in children[server]]
            came = sum(CAPS[j] for j in mine if present[j])
            if participation.least_weight is None:
                divisor = q * sum(CAPS[j] for j in mine)
            else:
                divisor = max(q * participation.least_weight, came)
            total = 0.0
            for j in mine:
                if present[j]:
                    update = models[str(j)] - handed[server]
                    update *= min(1.0, eta * clip / abs(update)) if update else 1.0
                    total += CAPS[j] * update
            return handed[server] + total / divisor

        def hand_down(server, model, models=models, handed=handed):
            handed[server] = model
            for child in children[server]:
                if child in children:
                    hand_down(child, model)
                else:
                    models[child] = model

        for layer in schedule.layers():
            for j in range(9):
                models[str(j)] -= eta * (models[str(j)] - TARGETS[j])
            if layer is None:
                continue
            servers = {0: ["c"], 1: ["A", "B"], 2: ["A1", "A2", "B1", "B2"]}[layer]
            gathered = {server: gather(server) for server in servers}
            for server, model in gathered.items():
                hand_down(server, model)
        theta = handed["c"]
    return theta


@pytest.mark.parametrize("least_weight", [None, 1.5])
@pytest.mark.parametrize("local", [{}, {1: 2}, {2: 1, 1: 3}])
@pytest.mark.parametrize("clip", [None, 0.8])
def test_rounds_are_those_computed_by_hand(local, least_weight, clip):
    planned = schedule(4, 5, local, 0.1)
    participation = Participation(0.4, CAPS, least_weight)
    plan = plan_of("hfl", TREE, None, planned, participation=participation)
    expected = by_hand(planned, participation, clip or np.inf)
    for tap in (None, lambda direction, layer, models: None):
        mechanism = clipping_alone(plan, clip)
        trained = run_plan(plan, mechanism, quadratic(), shards_of(TARGETS), tap=tap)
        assert float(trained[0]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["hfl", "hfl_dp", "m2fdp"])
@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_all_devices_at_weight_one_are_the_mean_of_their_models(softmax, name, mechanism):
    shards = make_shards([10, 12, 9, 7, 8, 11, 10, 9, 13], rate=0.5, dtype=torch.float64)
    planned = schedule(3, 4, {1: 2})
    trust = draw_trust(TREE, [0.5, 0.5], 0)
    usual = plan_of(name, TREE, trust, planned)
    dp = mechanism_for(usual, shards, mechanism)
    results = []
    for participation in (None, Participation(1.0, np.ones(9)), Participation(1.0, np.ones(9), 1)):
        network = replace(usual.network, participation=participation)
        results.append(run(network, dp, planned, softmax, shards))
    for result in results[1:]:
        torch.testing.assert_close(results[0], result, rtol=1e-12, atol=1e-12)


def squared_noise(plan, dp):
    """The variance of the final model's parameters, of 20,000, where gradients are zero."""
    return float(run_plan(plan, dp, *noise_alone(9)).double().var())


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_where_nobody_comes_servers_still_add_their_noise(mechanism):
    """That they do not would tell. Variances are within 6 standard deviations, seeded."""
    trust = draw_trust(TREE, [1.0, 1.0], 0)
    planned = schedule(2, 3)
    dp = mechanism_for(plan_of("m2fdp", TREE, trust, planned), make_shards([1] * 9), mechanism)
    nobody = plan_of("m2fdp", TREE, trust, planned, participation=Participation(1e-12, np.ones(9)))
    scales, times = (dp.noise.steps, 6) if mechanism == "gradient" else (dp.noise.messages[1], 2)
    expected = 0.5**2 * times * (scales**2).sum() / 4
    assert squared_noise(nobody, dp) == pytest.approx(expected, rel=6 / 100)


@pytest.mark.parametrize("least_weight", [None, 1.5])
@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_devices_noise_counts_as_their_updates_do(mechanism, least_weight):
    planned = schedule(3, 1)
    dp = mechanism_for(plan_of("hfl_dp", TREE, None, planned), make_shards([1] * 9), mechanism)
    joining = Participation(0.5, CAPS, least_weight)
    plan = plan_of("hfl_dp", TREE, None, planned, participation=joining)
    scales = dp.noise.steps if mechanism == "gradient" else dp.noise.messages[-1]
    expected = 0.0
    for round_ in (1, 2, 3):
        present = draw_participants(plan.network, KeyedStreams(0), round_)
        for zone in range(4):
            came = present & (TREE.parents[-1] == zone)
            divisor = 0.5 * CAPS[TREE.parents[-1] == zone].sum()
            if least_weight:
                divisor = max(0.5 * least_weight, CAPS[came].sum())
            expected += 0.5**2 * (CAPS[came] ** 2 @ scales[came] ** 2) / divisor**2 / 16
    assert squared_noise(plan, dp) == pytest.approx(expected, rel=6 / 100)


def test_nobody_joins_by_a_shared_draw():
    """Chances of rounds and devices are independent: a pair of either is there q^2 of the time.

    Seeded; with 10,000 draws a false alarm has a probability below 1e-5 over seeds."""
    network = plan_of("hfl", TREE, None, None, participation=Participation(0.3, np.ones(9))).network
    streams = seeded(0, b"").sampling
    draws = np.array([draw_participants(network, streams, t) for t in range(10_000)])
    assert np.abs(draws.mean(axis=0) - 0.3).max() < 5.2 * np.sqrt(0.3 * 0.7 / 10_000)
    pairs = [(draws[:, 0] & draws[:, 1]).mean(), (draws[1:] & draws[:-1])[:, 0].mean()]
    assert np.abs(np.array(pairs) - 0.09).max() < 5.2 * np.sqrt(0.09 * 0.91 / 10_000)
