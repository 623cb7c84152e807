"""`weights` in the engine: models are clipped, noise is absolute, drawn at every hop, and ends in
what an exact recursion says.

On quadratic losses h/2 ||w - a_i||^2 every stretch of steps brings a device's model r times as far
from its minimiser as it was. Then the error e of the broadcast model after a global round is

    e' = r^k2 e + noise,
    v = s_U2^2/(sN) + s_E^2/N + n_C^2 + sum over i = 1…k2-1 of r^2i (s_U1^2/(sN) + n_E^2/N)

a coordinate, where a round has k2 stretches. Coordinates are independent, so that a model of many
is as many repetitions.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import last_state, one_record_each, premises_of, process_of
from torch import nn

from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.streams import seeded
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted

N, S = 5, 10
SIGMA = {"u1": 0.3, "u2": 0.2, "e": 0.05, "n_e": 0.1, "n_c": 0.03}
PRIVACY = {"mechanism": "weights", "calibration": "paper", "delta": 1e-5}


class Point(nn.Module):
    """Scores = parameters - the record's number."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(size))

    def forward(self, features):
        return self.theta - features.flatten(1)


def quadratic(size: int, h: float) -> Model:
    return Model("point", Point(size), lambda s, _: h / 2 * s.square().sum(-1), linear=False)


def median(size: int) -> Model:
    return Model("median", Point(size), lambda s, _: s.abs().sum(-1), linear=False)


def network_of(n=N, s=S) -> Network:
    tree = tree_from_fanouts([n, s])
    nobody = all_untrusted(tree)
    servers = [np.ones(1), np.ones(n)]
    return Network(tree, nobody, (*servers, noise_plan(tree, nobody)[2]))


def mechanism_of(network, plans, sigma=None, norm=1.0, **noise):
    """`weights` with the given deviations, whatever they protect."""
    mechanism = build_mechanism(premises_of(network, plans, PRIVACY | {"clipping_norm": norm}))
    if sigma is None:
        return mechanism

    def at(layer, value):
        return np.full(network.tree.n_nodes(layer), value)

    nothing = mechanism.noise.local_messages
    drawn = replace(
        mechanism.noise,
        messages=(at(0, sigma["n_c"]), at(1, sigma["e"]), at(2, sigma["u2"])),
        local_messages=(nothing[0], nothing[1], at(2, sigma["u1"])),
        broadcasts=(mechanism.noise.broadcasts[0], at(1, sigma["n_e"])),
        **noise,
    )
    return replace(mechanism, noise=drawn)


def shards_of(values) -> Shards:
    """One number a device."""
    numbers = torch.as_tensor(np.asarray(values), dtype=torch.float32)
    return one_record_each(numbers.reshape(-1, 1, 1, 1))


# h, mu, eta, steps of a stretch, k2, and what a stretch leaves of the error.
CASES = {
    "exact argmin": (1.0, 0.0, 1.0, 1, 2, 0.0),
    "inexact": (1.0, 0.0, 0.5, 1, 2, 0.5),
    "two inexact steps, three stretches": (1.0, 0.0, 0.25, 2, 3, 0.75**2),
    "proximal, exact": (1.0, 1.0, 0.5, 1, 2, 0.5),
    "proximal, k1 = 2": (1.0, 3.0, 0.25, 2, 2, 0.75),
    "proximal, one stretch": (0.5, 1.5, 0.5, 1, 1, 0.75),
}


def expected_error(case, size, rounds, start, sigma=None):
    """E ||e||^2 after each round, over the number of coordinates."""
    *_, k2, r = CASES[case]
    sigma = sigma or SIGMA
    v = sigma["u2"] ** 2 / (S * N) + sigma["e"] ** 2 / N + sigma["n_c"] ** 2
    local = sigma["u1"] ** 2 / (S * N) + sigma["n_e"] ** 2 / N
    v += sum(r ** (2 * i) * local for i in range(1, k2))
    rest = r ** (2 * k2)
    return [rest**t * start**2 + v * (1 - rest**t) / (1 - rest) for t in range(1, rounds + 1)]


def run(case, sigma=SIGMA, size=20_000, rounds=6, change=None):
    """The mean squared error of the broadcast model after each round."""
    h, mu, eta, steps, k2, _ = CASES[case]
    schedule = Schedule(rounds, steps * k2, {1: steps} if k2 > 1 else {}, eta, "constant", mu)
    network, plans = network_of(), schedule.round_plans()
    mechanism = mechanism_of(network, plans, sigma, norm=1e6)
    if change is not None:
        mechanism = replace(mechanism, noise=change(mechanism.noise))
    values = np.random.default_rng(0).normal(0.3, 0.2, N * S)
    process = process_of(
        network, mechanism, quadratic(size, h), shards_of(values), seeded(3, b"recursion")
    )
    state, errors = process.start(), []
    for plan in plans:
        state = process.round(state, plan)
        errors.append(float((state.weights.double() - values.mean()).square().mean()))
    return np.array(errors), values.mean()


def off(errors, expected):
    return np.abs(errors / np.array(expected) - 1).max()


@pytest.mark.parametrize("case", CASES)
def test_the_engine_follows_the_exact_recursion(case):
    errors, start = run(case)
    # The mean of 20,000 squares: 1 % is one standard deviation; six rounds in six cases.
    assert off(errors, expected_error(case, 20_000, 6, start)) < 0.05


@pytest.mark.parametrize(
    "change",
    [
        lambda noise: replace(
            noise, messages=(noise.messages[0], noise.messages[1] * 0, noise.messages[2])
        ),
        lambda noise: replace(noise, messages=(noise.messages[0] * 0, *noise.messages[1:])),
        lambda noise: replace(noise, broadcasts=(noise.broadcasts[0], noise.broadcasts[1] * 0)),
        lambda noise: replace(noise, local_messages=None),
        lambda noise: replace(noise, unit="step"),
    ],
    ids=["no s_E", "no n_C", "no n_E", "s_U1 = s_U2", "over the step size"],
)
def test_a_hop_without_its_noise_is_noticed(change):
    case = "inexact"
    errors, start = run(case, rounds=6, change=change)
    assert off(errors, expected_error(case, 20_000, 6, start)) > 0.05


def heard(size=20_000, change=None):
    """Every message and broadcast of a round, less what it would be without its own noise."""
    schedule = Schedule(1, 2, {1: 1}, 1.0, "constant")
    network, plans = network_of(), schedule.round_plans()
    mechanism = mechanism_of(network, plans, SIGMA, norm=1e6)
    values = torch.linspace(-1, 1, N * S)
    process = process_of(
        network, mechanism, quadratic(size, 1.0), shards_of(values), seeded(5, b"tap")
    )
    messages = []
    state = last_state(
        process, plans, lambda way, layer, models: messages.append((way, layer, models.clone()))
    )
    first_up, down, second_up, edges = [models for *_, models in messages]
    assert [(way, layer) for way, layer, _ in messages] == [
        ("up", 2),
        ("down", 1),
        ("up", 2),
        ("up", 1),
    ]
    clean = values[:, None]  # one step with eta = 1/h ends in the minimiser

    def means(messages):
        return messages.reshape(N, S, -1).mean(1)

    return {
        "u1": first_up - clean,
        "n_e": down - means(first_up),
        "u2": second_up - clean,
        "e": edges - means(second_up),
        "n_c": state.weights[None] - edges.mean(0, keepdim=True),
    }


def has_its_noise(noise, sigma):
    """Whether rows are independent and each of that deviation: to 1 %, where there are enough of
    them, and uncorrelated."""
    noise = noise.double()
    tolerance = 0.01 if noise.numel() > 50_000 else 0.02  # 3 and 4 standard deviations at least
    right = abs(float(noise.square().mean().sqrt()) / sigma - 1) < tolerance
    if len(noise) == 1:
        return right
    correlation = np.corrcoef(noise.numpy())
    np.fill_diagonal(correlation, 0)
    return right and np.abs(correlation).max() < 0.05  # seven standard deviations


def test_a_listener_hears_the_noise_of_every_hop():
    for name, noise in heard().items():
        assert has_its_noise(noise, SIGMA[name]), name
        assert not has_its_noise(noise * 1.05, SIGMA[name])
        assert not has_its_noise(noise * 0.95, SIGMA[name])
        if len(noise) > 1:
            duplicated = noise.clone()
            duplicated[1] = duplicated[0]
            assert not has_its_noise(duplicated, SIGMA[name])


SILENT = dict.fromkeys(SIGMA, 0.0)


def messages_of(model, shards, norm, steps, eta, local=None):
    """What devices send, un-noised, in one round."""
    network = network_of(1, len(shards.sizes))
    plans = Schedule(1, steps, {} if local is None else {1: local}, eta, "constant").round_plans()
    mechanism = mechanism_of(network, plans, SILENT, norm=norm)
    sent = []
    process = process_of(network, mechanism, model, shards)
    last_state(
        process,
        plans,
        lambda way, layer, models: sent.append(models.clone()) if layer == 2 else None,
    )
    return torch.stack(sent)


@settings(max_examples=15)
@given(
    values=st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=4),
    norm=st.floats(1e-3, 1e3),
    eta=st.floats(1e-3, 10),
    steps=st.integers(1, 6),
    kind=st.sampled_from([quadratic, median]),
)
def test_no_two_models_are_further_apart_than_the_ball_is_wide(values, norm, eta, steps, kind):
    """Whatever the data, the losses, the steps: also where they diverge."""
    model = kind(7, 1.0) if kind is quadratic else kind(7)
    sent = messages_of(model, shards_of(values), norm, steps, eta).flatten(0, 1)
    assert float(torch.cdist(sent, sent).max()) <= 2 * norm * (1 + 1e-4)


def test_replacing_one_record_moves_the_argmin_of_a_median_across_the_ball():
    """G eq. 4.2 would have it move by 2C/1201 at most."""
    norm, high = 15.0, 20.0

    def sent(highs):
        values = torch.full((1201, 1, 1, 1), -high)
        values[:highs] = high
        shards = Shards(values, torch.zeros(1201, dtype=torch.int64), np.array([1201]), np.ones(1))
        # Of 1201 gradients of size one 1200 cancel out.
        return messages_of(median(1), shards, norm, 4, 1201 * norm)[0, 0]

    one, other = sent(601), sent(600)
    assert float((one - other).norm()) > 1.99 * norm
    assert float((one - other).norm()) > 1000 * 2 * norm / 1201


def test_models_are_clipped_where_they_are_sent_and_nowhere_between():
    """Ten steps pass through models longer than C on the way to a shorter one."""
    model = quadratic(1, 1.0)
    sent = messages_of(model, shards_of([0.9, 3.0]), 1.0, 1, 1.5)  # 1.35 and 4.5 after a step
    assert sent.flatten().tolist() == pytest.approx([1.0, 1.0])
    sent = messages_of(model, shards_of([0.9, 3.0]), 1.0, 2, 1.5)  # 0.675 and 2.25 after two
    assert sent.flatten().tolist() == pytest.approx([0.675, 1.0])


def test_a_model_that_is_no_number_counts_as_zero():
    sent = messages_of(quadratic(2, 1.0), shards_of([float("inf"), 1.0]), 2.0, 1, 1.0)
    assert sent[0, 0].tolist() == [0.0, 0.0]
    assert sent[0, 1].tolist() == pytest.approx([1.0, 1.0])
