"""Sums that hide their terms, in training: who is in them, and behind which noise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.builders import experiment_of, last_state

from m2fdp.core.errors import InputError
from m2fdp.core.streams import seeded
from m2fdp.core.topology.network import SecureSums, readers
from m2fdp.deployment.rehearsed import as_nodes
from m2fdp.secure_aggregation.rounds import draw_survivors
from m2fdp.secure_aggregation.terms import Group, Scale

BASE = {
    "topology.fanouts": [3, 4],
    "topology.trust.ratios": [1.0],
    "training.rounds": 2,
    "training.local_steps": 3,
    "training.local_aggregation": None,
    "training.batch_size": 8,
    "model.name": "softmax",
    "privacy.epsilon": 20.0,
    "secure_aggregation.layers": [1],
    "secure_aggregation.noise": "shared",
}
UPLOAD = {"privacy.mechanism": "upload", "privacy.unit": "device", "privacy.epsilon": 50.0}
# What is summed where.
SYSTEMS = {
    "steps of edge servers, some silent": {"secure_aggregation.dropout": 0.2},
    "steps of zones beside a trusted one": {
        "topology.trust.ratios": [0.34],
        "secure_aggregation.layers": [2],
    },
    "steps of all devices, some below trusted servers": {
        "topology.trust.ratios": [0.34],
        "secure_aggregation.layers": [2],
        "secure_aggregation.decode": "cloud",
    },
    "models of edge servers": UPLOAD,
    "models of zones, some silent": UPLOAD
    | {
        "algorithm": "hfl_dp",
        "secure_aggregation.layers": [1, 2],
        "secure_aggregation.dropout": 0.2,
        "training.local_aggregation": {1: 2},
    },
}


def simulation_of(system):
    """In float64, with one noise."""
    experiment = experiment_of(BASE, SYSTEMS[system] if isinstance(system, str) else system)
    shards = experiment.shards()
    simulation = experiment.simulation(
        shards=replace(shards, features=shards.features.double()), randomness=seeded(0, b"one")
    )
    return experiment, simulation


def final(experiment, simulation, tap=None):
    process = experiment.process(simulation)
    return last_state(process, experiment.run_plan.rounds, tap).weights


@pytest.mark.parametrize(
    "changes",
    [
        UPLOAD,
        UPLOAD
        | {
            "algorithm": "hfl_dp",
            "secure_aggregation.layers": [1, 2],
            "training.local_aggregation": {1: 2},
        },
    ],
)
def test_masked_sums_end_where_ideal_ones_do(changes, monkeypatch):
    """Up to the grid, n/f in each coordinate of each sum: what real nodes mask, and what is
    simulated."""
    scales, points = [], Scale.points
    monkeypatch.setattr(
        Scale, "points", lambda scale, n: scales.append((points(scale, n), n)) or points(scale, n)
    )
    experiment, simulation = simulation_of(changes)
    process, plans = experiment.process(simulation), experiment.run_plan.rounds
    ideal, masked = (
        last_state(each, plans, lambda *_: None).weights for each in (process, as_nodes(process))
    )
    bound = sum(n / f for f, n in scales)
    assert 0 < (ideal - masked).abs().max() <= bound < 1e-3 * (ideal.abs().max())


@pytest.mark.parametrize(
    "system",
    [
        "steps of edge servers, some silent",
        "models of edge servers",
        "steps of zones beside a trusted one",
        "steps of all devices, some below trusted servers",
    ],
)
def test_a_listener_changes_no_law(system):
    """Fused or one by one, the noise of the final model has one deviation (false alarm 1e-4)."""
    experiment, simulation = simulation_of(system)
    variances = []
    for tap in (None, lambda *_: None):
        models = [
            final(experiment, replace(simulation, randomness=seeded(0, bytes([n]))), tap)
            for n in range(8)
        ]
        variances.append(torch.stack(models).var(dim=0).mean())
    # 650 coordinates of 7 degrees of freedom each: the ratio's deviation is about 0.042.
    assert variances[0] / variances[1] == pytest.approx(1, abs=0.17)


def test_a_trusted_server_beside_zones_that_are_summed_noises_what_it_sends():
    """Of three zones one has a head of its own: what each sends holds all noise of its steps.

    Coordinates of a pixel that is always dark hold noise alone; 10 times 4 of them tell a deviation
    to 11 %, so that a right one is missed with a chance below 1e-4 of each.
    """
    experiment, simulation = simulation_of("steps of zones beside a trusted one")
    (mechanism,), sent = simulation.mechanisms, []
    start = experiment.process(simulation).start().weights

    def tap(direction, layer, models):
        if layer == 1 and not sent:
            sent.append(models - start)

    final(experiment, simulation, tap)
    features = simulation.shards.features.flatten(1)
    dark = (features == 0).all(dim=0).nonzero().flatten()
    assert len(dark) >= 3 and experiment.network.trust[1].sum() == 1
    moved = sent[0][:, :640].reshape(3, 10, 64)[:, :, dark].flatten(1)
    eta = experiment.run_plan.rounds[0].step_size
    expected = eta * np.sqrt(3) * mechanism.noise.steps  # three steps
    np.testing.assert_allclose(moved.square().mean(dim=1).sqrt(), expected, rtol=0.5)


def test_who_falls_silent_moves_nothing():
    """Against a loop by hand over edge servers that each hold one device's clipped update."""
    changes = SYSTEMS["models of zones, some silent"] | {
        "training.local_aggregation": None,
        "training.rounds": 1,
        "secure_aggregation.dropout": 0.3,
    }
    experiment, simulation = simulation_of(changes)
    (network,), (mechanism,) = simulation.networks, simulation.mechanisms
    silent = replace(
        mechanism,
        noise=replace(mechanism.noise, messages=tuple(0 * x for x in mechanism.noise.messages)),
    )
    messages = {}

    def tap(direction, layer, models):
        messages[layer] = models.clone()

    start = experiment.process(simulation).start().weights
    ended = final(experiment, replace(simulation, mechanisms=(silent,)), tap)
    everybody = np.ones(12, dtype=bool)
    alive = draw_survivors(network, everybody, simulation.randomness.sampling, (1, 3))
    assert not alive[2].all()
    by_hand = torch.zeros_like(start)
    for server in range(3):
        update = torch.zeros_like(start)
        for device in np.flatnonzero(network.tree.parents[1] == server):
            update += alive[2][device] * (messages[2][device] - start) / 4
        by_hand += alive[1][server] * update / 3
    torch.testing.assert_close(ended, start + by_hand, rtol=0, atol=1e-12)


def test_a_step_s_noise_is_that_of_those_who_are_in_its_sum():
    experiment, simulation = simulation_of("steps of edge servers, some silent")
    (mechanism,) = simulation.mechanisms
    process = experiment.process(simulation)
    plan = experiment.run_plan.rounds[0]
    steps = process.kind.draw(simulation, plan, process.start()).steps
    sizes = {int(step.members[1].sum()) for step in steps}
    assert len(steps) == 3
    for step in steps:
        share = mechanism.noise.heads[1] / 3
        expected = np.sqrt((share[step.members[1]] ** 2).sum())
        assert step.noise == pytest.approx([expected])
        assert (step.devices == np.repeat(step.members[1], 4)).all()
    assert sizes


def test_a_run_goes_on_without_what_is_lost():
    """Nobody is ever left: the model stays where it was."""
    experiment, simulation = simulation_of({"secure_aggregation.dropout": 0.999})
    start = experiment.process(simulation).start().weights
    assert torch.equal(final(experiment, simulation), start)


def test_groups_of_one_are_refused():
    with pytest.raises(InputError, match=r"^secure_aggregation.layers = 1: adds up 1 message"):
        experiment_of(BASE, {"topology.fanouts": [1, 4]})
    with pytest.raises(InputError):
        Group("cloud", 1, 1)
    assert SecureSums(frozenset([1])).fewest(1, np.array([10])).tolist() == [10]


@pytest.mark.parametrize(
    "system", ["steps of edge servers, some silent", "models of zones, some silent"]
)
def test_lost_sums_are_counted_before_training(system, monkeypatch):
    """As many as the rounds then lose."""
    changes = SYSTEMS[system] | {"secure_aggregation.dropout": 0.4, "training.rounds": 5}
    experiment, simulation = simulation_of(changes)
    (network,) = simulation.networks
    counts = {}

    def listening(network, present, streams, at):
        alive = draw_survivors(network, present, streams, at)
        plan = experiment.run_plan.rounds[at[0] - 1]
        for layer, members in alive.items():
            of_node = readers(network.tree, network.sums, layer)
            remaining = np.bincount(of_node, weights=members)
            if plan.layers[at[1] - 1] is not None or "steps" in system:
                counts[at, layer] = remaining == 0
        return alive

    monkeypatch.setattr("m2fdp.secure_aggregation.rounds.draw_survivors", listening)
    simulation = replace(simulation, randomness=seeded(experiment.config.seed, b""))
    final(experiment, simulation)
    read = {
        key: lost
        for key, lost in counts.items()
        if "steps" in system or experiment.run_plan.rounds[0].layers[key[0][1] - 1] < key[1]
    }
    lost = sum(int(of_sum.sum()) for of_sum in read.values())
    total = sum(len(of_sum) for of_sum in read.values())
    assert lost > 0
    (line,) = [line for line in experiment.warnings() if "sums lose" in line]
    assert line.startswith(f"{lost} of {total} sums lose too many senders")
