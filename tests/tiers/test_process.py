"""Rounds in tiers: whose models are averaged with what weight, and what no average may touch."""

from __future__ import annotations

import numpy as np
import torch
from tests.builders import records_of

from m2fdp.core.config import load_config
from m2fdp.experiment import Experiment
from m2fdp.tiers.local import Client

SMALL = {
    "dataset.name": "npz",
    "topology.fanouts": [3],
    "topology.trust.ratios": [],
    "training.local_aggregation": None,
    "training.rounds": 2,
    "training.batch_size": 4,
    "training.learning_rate": 0.01,
    "model.name": "resnet",
    "model.width": 2,
    "clock.profiles": [[4.0, 100.0], [0.1, 10.0]],
    "clock.switch_every": None,
    "clock.noise": 0.0,
    "threads": 1,
}
SIZES = (6, 9, 12)


def experiment(**keys):
    dataset, manifest = records_of(SIZES)
    tiers = {"tiering.tiers": 2} if keys.get("algorithm") == "dtfl" else {}
    return Experiment.from_config(load_config(SMALL, tiers, keys), dataset, manifest)


def clients_of(process, state, plan):
    """The vectors of all clients of a round, one by one."""
    shards, ends = process.simulation.shards, np.cumsum(SIZES)
    draws = process.simulation.randomness.sampling, state.round + 1
    vectors = []
    for number, size in enumerate(SIZES):
        rows = slice(int(ends[number]) - size, int(ends[number]))
        client = Client(number, rows, int(process.cuts[state.round, number]))
        records = shards.features, shards.labels
        vectors.append(
            process.executor.trainer.update(state.weights, records, client, plan.step_size, draws)
        )
    return torch.stack(vectors)


def test_a_round_ends_in_the_weighted_mean_of_all_clients():
    run = experiment(algorithm="fedavg")
    process, plan = run.process(), run.run_plan.rounds[0]
    state = process.start()
    vectors = clients_of(process, state, plan).double()
    weights = np.array(SIZES) / 27
    mean = (torch.as_tensor(weights)[:, None] * vectors).sum(0)
    after = process.round(state, plan)
    assert after.round == 1
    torch.testing.assert_close(after.weights.double(), mean, rtol=1e-5, atol=1e-6)
    buffers = process.model.buffers_place
    assert not torch.equal(after.weights[buffers], state.weights[buffers])


def test_a_head_is_averaged_over_its_tiers_clients_and_else_stays():
    """The second round: two fast clients in tier 2, the slow one in tier 1; M = 2 cuts after 6
    and 7."""
    run = experiment(algorithm="dtfl")
    process, plans = run.process(), run.run_plan.rounds
    start = process.start()
    first = process.round(start, plans[0])
    seven, six = process.model.head_place(7), process.model.head_place(6)
    assert process.cuts[0].tolist() == [6, 6, 6]
    assert torch.equal(first.weights[seven], start.weights[seven])
    assert not torch.equal(first.weights[six], start.weights[six])
    cuts = process.cuts[1]
    assert set(cuts.tolist()) == {6, 7}
    vectors = clients_of(process, first, plans[1]).double()
    second = process.round(first, plans[1]).weights.double()
    for cut, place in ((6, six), (7, seven)):
        members = np.flatnonzero(cuts == cut)
        weights = torch.as_tensor(np.array(SIZES)[members] / np.array(SIZES)[members].sum())
        mean = (weights[:, None] * vectors[members][:, place]).sum(0)
        torch.testing.assert_close(second[place], mean, rtol=1e-5, atol=1e-6)


def test_who_is_absent_trains_nothing():
    run = experiment(**{"algorithm": "fedavg", "training.participants": 1})
    process, plan = run.process(), run.run_plan.rounds[0]
    (device,) = np.flatnonzero(process.cuts[0] > 0)
    state = process.start()
    expected = clients_of_one(process, state, plan, int(device))
    torch.testing.assert_close(process.round(state, plan).weights, expected)


def clients_of_one(process, state, plan, number):
    shards, ends = process.simulation.shards, np.cumsum(SIZES)
    rows = slice(int(ends[number]) - SIZES[number], int(ends[number]))
    client = Client(number, rows, int(process.cuts[state.round, number]))
    draws = process.simulation.randomness.sampling, state.round + 1
    records = shards.features, shards.labels
    return process.executor.trainer.update(state.weights, records, client, plan.step_size, draws)


def test_yogi_steps_weights_and_no_buffer():
    average, yogi = (experiment(algorithm=name) for name in ("fedavg", "fedyogi"))
    states = []
    for run in (average, yogi):
        process = run.process()
        states.append(process.round(process.start(), run.run_plan.rounds[0]))
    mean, stepped = (state.weights for state in states)
    model = process.model
    start = model.initial_vector()
    assert torch.equal(mean[model.buffers_place], stepped[model.buffers_place])
    update = (mean - start)[: model.buffers_place.start]
    # The first step: m = 0.1 D, v = 1e-6 + 0.01 D^2 where D^2 is the larger, else less.
    squared = update**2
    v = 1e-6 - 0.01 * squared * torch.sign(1e-6 - squared)
    expected = start[: len(update)] + 0.01 * 0.1 * update / (v.sqrt() + 1e-3)
    torch.testing.assert_close(stepped[: len(update)], expected, rtol=1e-4, atol=1e-6)
    assert set(states[1].slots.server) == {"m", "v"}


def test_who_listens_hears_every_clients_model():
    run = experiment(algorithm="fedavg")
    process, plan = run.process(), run.run_plan.rounds[0]
    state, messages = process.start(), []
    after = process.round(state, plan, lambda *message: messages.append(message))
    ((direction, layer, models),) = messages
    assert (direction, layer) == ("up", 1)
    assert torch.equal(models, clients_of(process, state, plan))
    assert torch.equal(process.round(state, plan).weights, after.weights)
