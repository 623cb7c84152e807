"""Rounds in tiers: whose models are averaged with what weight, and what no average may touch."""

import numpy as np
import torch
from tests.tiers.runs import SIZES, experiment

CLOCK = {
    "clock.profiles": [[4.0, 100.0], [0.1, 10.0]],
    "clock.switch_every": None,
    "clock.noise": 0.0,
    "tiering.tiers": 2,
}


def vector_of(process, state, plan, number):
    """What a client makes of a round."""
    client, records = (number, int(process.cuts[state.round, number])), process.records(number)
    draws = process.simulation.randomness.sampling, state.round + 1
    return process.trainer.update(state.weights, records, client, plan.step_size, draws)


def vectors_of(process, state, plan):
    """The vectors of all clients of a round, one by one."""
    return torch.stack([vector_of(process, state, plan, number) for number in range(3)])


def begun(algorithm, **keys):
    """A process, its first state and the plan of its first round."""
    run = experiment(algorithm, **keys)
    process = run.process()
    return process, process.start(), run.run_plan.rounds[0]


def test_a_round_ends_in_the_weighted_mean_of_all_clients():
    process, state, plan = begun("fedavg")
    vectors = vectors_of(process, state, plan).double()
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
    run = experiment("dtfl", **CLOCK)
    process, plans = run.process(), run.run_plan.rounds
    start = process.start()
    first = process.round(start, plans[0])
    seven, six = process.model.head_place(7), process.model.head_place(6)
    assert process.cuts[0].tolist() == [6, 6, 6]
    assert torch.equal(first.weights[seven], start.weights[seven])
    assert not torch.equal(first.weights[six], start.weights[six])
    cuts = process.cuts[1]
    assert set(cuts.tolist()) == {6, 7}
    vectors = vectors_of(process, first, plans[1]).double()
    second = process.round(first, plans[1]).weights.double()
    for cut, place in ((6, six), (7, seven)):
        members = np.flatnonzero(cuts == cut)
        weights = torch.as_tensor(np.array(SIZES)[members] / np.array(SIZES)[members].sum())
        mean = (weights[:, None] * vectors[members][:, place]).sum(0)
        torch.testing.assert_close(second[place], mean, rtol=1e-5, atol=1e-6)


def test_who_is_absent_trains_nothing():
    process, state, plan = begun("fedavg", **{"training.participants": 1})
    (device,) = np.flatnonzero(process.cuts[0] > 0)
    expected = vector_of(process, state, plan, int(device))
    torch.testing.assert_close(process.round(state, plan).weights, expected)


def test_yogi_steps_weights_and_no_buffer():
    states = []
    for algorithm in ("fedavg", "fedyogi"):
        process, state, plan = begun(algorithm)
        states.append(process.round(state, plan))
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
    (process, state, plan), messages = begun("fedavg"), []
    after = process.round(state, plan, lambda *message: messages.append(message))
    ((direction, layer, models),) = messages
    assert (direction, layer) == ("up", 1)
    assert torch.equal(models, vectors_of(process, state, plan))
    assert torch.equal(process.round(state, plan).weights, after.weights)
