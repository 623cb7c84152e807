"""A trusted cloud that noises what it broadcasts: the engine and the ledger, by other means."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.builders import last_state, one_record_each, premises_of, process_of
from tests.core.privacy.closed_forms import delta_of

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.registry import build_model
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, heads_of, noise_plan

ROUNDS, STEPS, SIZES = 2, 3, [10, 12, 9, 7, 11, 8]


def everybody_trusted(fanouts):
    tree = tree_from_fanouts(fanouts)
    trust = tuple(np.ones(tree.n_nodes(layer), dtype=bool) for layer in range(tree.depth))
    network = Network(tree, trust, noise_plan(tree, trust))
    assert (heads_of(network) == 0).all()
    return network


EVERYBODY = {"distrusted": ["siblings", "cousins", "public"]}


def calibrated(network, plan, shards, **privacy):
    asked = {"epsilon": 2, "delta": 1e-5, "clipping_norm": 0.5} | privacy
    numbers = shards.sizes, shards.rates
    return build_mechanism(premises_of(network, plan.round_plans(), asked, EVERYBODY, *numbers))


@pytest.mark.parametrize("local", [{}, {1: 1}], ids=["global", "local"])
def test_every_step_is_one_of_the_whole_network(
    run, schedule, make_shards, softmax, mechanism_of_steps, local
):
    """Two servers of three devices: w <- w - eta sum_j (1/6) sum_i clip(g_i) / D_j, K T times."""
    network, plan = everybody_trusted([2, 3]), schedule(ROUNDS, STEPS, local)
    shards = make_shards(SIZES, dtype=torch.float64)
    found = run(network, mechanism_of_steps(network, plan, shards, 0.0), plan, softmax, shards)
    owner = torch.repeat_interleave(torch.arange(6), torch.tensor(SIZES))
    x, y = shards.features.flatten(1), shards.labels
    w = torch.zeros(10, 64, dtype=torch.float64)
    for _ in range(ROUNDS * STEPS):
        error = torch.softmax(x @ w.T, dim=1)
        error[torch.arange(len(y)), y] -= 1
        norms = error.norm(dim=1) * x.norm(dim=1)
        weights = torch.clamp(0.5 / norms, max=1) / torch.tensor(SIZES)[owner] / 6
        w = w - 0.5 * (error * weights[:, None]).T @ x
    torch.testing.assert_close(found.view(10, 64), w)


@pytest.fixture
def mechanism_of_steps():
    """A calibrated mechanism, its noise times a factor."""

    def make(network, plan, shards, factor):
        mechanism = calibrated(network, plan, shards)
        noise = mechanism.noise
        return replace(mechanism, noise=replace(noise, steps=noise.steps * factor))

    return make


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_the_cloud_s_noise_is_drawn_once(schedule, mechanism, heard):
    """Of 20,000 numbers the variance lies within 6 % but for 1e-8; twice it is far outside."""
    network, plan = everybody_trusted([2, 3]), schedule(ROUNDS, STEPS)
    shards = one_record_each(torch.zeros(6, 1, 100, 100))
    model = build_model(ModelConfig(name="svm"), (1, 100, 100), 2, seed=0)
    dp = calibrated(network, plan, shards, mechanism=mechanism)
    process = process_of(network, dp, model, shards)
    tap = (lambda *message: None) if heard else None
    weights = last_state(process, plan.round_plans(), tap).weights
    scale = sqrt(STEPS) * dp.noise.steps[0] if mechanism == "gradient" else dp.noise.messages[0][0]
    if mechanism == "gradient":
        assert not dp.noise.messages[0].any()
    assert float(weights.double().var()) == pytest.approx(0.25 * ROUNDS * scale**2, rel=0.06)


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_the_least_noise_of_central_privacy(schedule, make_shards, mechanism):
    """K T releases, each moved by at most C/(6 min D): mu = sqrt(K T) C / (6 D sigma); or T, where
    K steps of a record move the mean of six by 2 G K / 6."""
    network, plan = everybody_trusted([2, 3]), schedule(ROUNDS, STEPS)
    dp = calibrated(network, plan, make_shards(SIZES), mechanism=mechanism)
    if mechanism == "gradient":
        shift = sqrt(ROUNDS * STEPS) * 0.5 / (6 * min(SIZES)) / dp.noise.steps[0]
    else:
        shift = sqrt(ROUNDS) * 2 * 0.5 * STEPS / 6 / dp.noise.messages[0][0]
    assert delta_of(shift, 2.0) <= 1e-5 < delta_of(shift, 1.99)
    kinds = {line.kind for line in dp.ledger.lines}
    assert kinds == {"siblings", "cousins", "public", "uplinks", "downlinks", "trusted_servers"}
