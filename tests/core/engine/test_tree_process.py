"""The round loop: a worked example, special cases, determinism, and the size of the noise; and a
trusted cloud that noises what it broadcasts."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.builders import one_record_each, premises_of, quadratic, without_noise
from tests.core.engine.parts import (
    RAGGED,
    make_shards,
    mechanism_for,
    noise_alone,
    plan_of,
    run,
    run_plan,
    schedule,
    silent,
)
from tests.core.privacy.parts import delta_of

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.registry import build_model
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.privacy.mechanisms import Clipping
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, heads_of, noise_plan
from m2fdp.core.topology.trust import draw_trust, explicit_trust
from m2fdp.given.edges import tree_from_edges
from m2fdp.processes import workers


def test_two_rounds_on_a_ragged_tree_by_hand():
    """Device j pulls w halfway to c_j in each of K = 3 steps; layer 2 aggregates every step,
    layer 1 every second, so step 1 ends at layer 2, step 2 at layer 1, step 3 at the cloud.

    Round 1, w = 0: steps to 0 4 8 16 32, layer 2 has 2 8 24; steps to 1 5 12 28 44, layer 2
    has 3 12 36, layer 1 has 7.5 36; steps to 3.75 7.75 11.75 34 50, layer 2 has 5.75 11.75 42,
    layer 1 has 8.75 42, the cloud 25.375. Round 2 in the same way ends at 28.546875.
    """
    network, mechanism = without_noise(tree_from_edges(RAGGED))
    shards = one_record_each(torch.tensor([0.0, 8, 16, 32, 64]).view(5, 1, 1, 1))
    model = quadratic()
    plan = schedule(local_aggregation={2: 1, 1: 2})
    first = run(network, mechanism, schedule(1, 3, {2: 1, 1: 2}), model, shards)
    assert first.item() == 25.375
    assert run(network, mechanism, plan, model, shards).item() == 28.546875
    reference = run(network, mechanism, plan, model, shards, backend="reference")
    assert reference.item() == 28.546875


@pytest.mark.parametrize(
    ("mechanism", "steps"), [("upload", 3), ("gradient", 1)], ids=["upload", "gradient"]
)
def test_m2fdp_with_noise_and_clipping_off_is_hfl(softmax, mechanism, steps):
    tree = tree_from_edges(RAGGED)
    trust = explicit_trust(tree, ["B"])
    shards = make_shards([10, 12, 9, 7, 11], rate=0.5, dtype=torch.float64)
    results = []
    for name in ("m2fdp", "hfl"):
        plan = plan_of(name, tree, trust, schedule(3, steps, {1: 2}))
        dp = silent(mechanism_for(plan, shards, mechanism))
        results.append(run_plan(plan, dp, softmax, shards))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)
    assert results[0].abs().max() > 0.01


def test_pedpfl_is_hfl_dp_when_every_step_ends_a_round(softmax):
    tree = tree_from_fanouts([3, 2])
    shards = make_shards([10] * 6, dtype=torch.float64)
    results = {}
    for steps in (1, 4):
        for name in ("pedpfl", "hfl_dp"):
            plan = plan_of(name, tree, None, schedule(3, steps, {1: 2}))
            dp = mechanism_for(plan, shards)
            results[name] = run_plan(plan, dp, softmax, shards)
        equal = torch.allclose(results["pedpfl"], results["hfl_dp"], rtol=1e-9, atol=1e-12)
        assert equal == (steps == 1)


def loss_gradient(weights, features, labels):
    """The mean softmax gradient, written out: (p - y) x^T / n."""
    x = features.flatten(1)
    probabilities = torch.softmax(x @ weights.T, dim=1)
    probabilities[torch.arange(len(labels)), labels] -= 1
    return probabilities.T @ x / len(labels)


def test_hfl_on_a_star_is_fedavg(softmax):
    shards = make_shards([6, 9, 4], dtype=torch.float64)
    trained = run(*without_noise(tree_from_fanouts([3])), schedule(4, 3), softmax, shards)
    pieces = list(
        zip(shards.features.split([6, 9, 4]), shards.labels.split([6, 9, 4]), strict=True)
    )
    server = torch.zeros(10, 64, dtype=torch.float64)
    for _ in range(4):
        local = []
        for x, y in pieces:
            w = server.clone()
            for _ in range(3):
                w = w - 0.5 * loss_gradient(w, x, y)
            local.append(w)
        server = torch.stack(local).mean(0)
    torch.testing.assert_close(trained.view(10, 64), server)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("softmax", "auto"),
        ("cnn12", "auto"),
        pytest.param("cnn12", "stacked", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_no_byte_depends_on_chunks_or_workers(monkeypatch, name, backend, rate):
    """Shards of 13 and 200: some minibatches are stacked, others are too large."""
    tree = tree_from_fanouts([10, 5])
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 0.0)
    shards = make_shards([13] * 45 + [200] * 5, rate=rate)
    model = build_model(ModelConfig(name=name), (1, 8, 8), 10, seed=0)
    plan = plan_of("m2fdp", tree, draw_trust(tree, [0.5], 0), schedule(2, 3, {1: 2}))
    dp = mechanism_for(plan, shards)
    results = [
        run_plan(plan, dp, model, shards, backend=backend, chunk_size=size, workers=count)
        for size, count in [(None, 1), (50, 1), (7, 2), (1, 3)]
    ]
    assert len({result.numpy().tobytes() for result in results}) == 1


# With features of zero every gradient is zero and the global model is noise alone, 20,000
# independent draws of it: an estimated variance is off by 1 % (one std), and the tolerance of
# 6 % has a false-alarm rate below 1e-8. Half or twice the variance is far outside.
TOLERANCE = 0.06


# Rounds in which noises are summed, and rounds in which every message is tapped.
TAPS = {"untapped": None, "tapped": lambda *message: None}


ZONES = [("cloud", "A"), ("cloud", "B"), ("A", "0"), ("A", "1"), ("B", "2"), ("B", "3")]
# Edges, untrusted servers, schedule, mechanism, participants; of its noise, the global model's
# variance over eta^2.
NOISES = {
    # Layer 2 aggregates at step 2 of 3: devices 3 and 4 noise their messages to b1 twice, A its own
    # to the cloud once. The cloud weighs A and B one half; a mean of two has half the variance.
    "uploads on a ragged tree": (
        *(RAGGED, ["B", "b1"], (1, 3, {2: 2}), "upload", None),
        lambda noise: noise.messages[1][0] ** 2 / 4 + 2 * (noise.messages[3][3] ** 2 / 2) / 4,
    ),
    "steps of A and of devices 3 and 4": (
        *(RAGGED, ["B", "b1"], (1, 3), "gradient", None),
        lambda noise: 3 * (noise.steps[0] ** 2 / 4 + (noise.steps[1:] ** 2).sum() / 4 / 4),
    ),
    # Were two siblings' draws equal, the variance would double; were two rounds', likewise.
    "siblings and rounds": (
        *([("cloud", "0"), ("cloud", "1")], [], (2, 1), "gradient", None),
        lambda noise: 2 * noise.steps[0] ** 2 / 2,
    ),
    # Two of three devices noise their messages, each weighted one half; in round two other two do.
    "only devices that take part": (
        *([("cloud", "A"), *(("A", i) for i in "012")], ["A"], (2, 2), "upload", 2),
        lambda noise: 2 * noise.messages[2][0] ** 2 / 2,
    ),
    # Whatever is averaged when, every step adds a quarter of a device's variance.
    "steps between local aggregations": (
        *(ZONES, ["A", "B"], (2, 4, {1: 2}), "gradient", None),
        lambda noise: 2 * 4 * noise.steps[0] ** 2 / 4,
    ),
}


@pytest.mark.parametrize("tap", TAPS)
@pytest.mark.parametrize("case", NOISES)
def test_noise_in_the_global_model_by_hand(tap, case):
    edges, untrusted, of_rounds, mechanism, participants, variance = NOISES[case]
    tree = tree_from_edges(edges)
    model, shards = noise_alone(tree.n_devices)
    trust, planned = explicit_trust(tree, untrusted), schedule(*of_rounds)
    plan = plan_of("m2fdp", tree, trust, planned, participants=participants)
    dp = mechanism_for(plan, shards, mechanism)
    weights = run_plan(plan, dp, model, shards, tap=TAPS[tap]).double()
    expected = 0.5**2 * variance(dp.noise)
    assert float(weights.var()) == pytest.approx(expected, rel=TOLERANCE)
    assert abs(float(weights.mean())) < 6 * sqrt(expected / 20_000)


def test_updates_of_devices_are_clipped_between_synchronisations(softmax):
    """One device below the cloud, so that the model is the device's own: K steps of far more
    than eta S move it by eta S, and steps of less are left alone.
    """
    shards = make_shards([12], dtype=torch.float64)
    network, free = without_noise(tree_from_fanouts([1]))
    whole = run(network, free, schedule(1, 4), softmax, shards)
    for norm, expected in ((0.1, 0.5 * 0.1), (100.0, float(whole.norm()))):
        clipped = replace(free, clipping=Clipping("drawn", update_norm=norm))
        moved = run(network, clipped, schedule(1, 4), softmax, shards)
        assert float(moved.norm()) == pytest.approx(expected, rel=1e-9)
        cosine = torch.nn.functional.cosine_similarity(moved, whole, dim=0)
        assert float(cosine) == pytest.approx(1)
    # Below a server that aggregates after step 2 of 4 it moves twice as far.
    two, free = without_noise(tree_from_fanouts([1, 1]))
    clipped = replace(free, clipping=Clipping("drawn", update_norm=0.01))
    moved = run(two, clipped, schedule(1, 4, {1: 2}), softmax, shards)
    assert 1.9 * 0.5 * 0.01 < float(moved.norm()) <= 2 * 0.5 * 0.01 * (1 + 1e-9)


@pytest.mark.parametrize("rate", [1.0, 0.2])
@pytest.mark.parametrize("norms", [{"batch_norm": 0.3}, {"update_norm": 0.3}], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_a_record_without_a_finite_gradient_moves_nothing_else(softmax, norms, rate, value):
    """Three devices below the cloud, from zero: what the first device's record 0 spoils counts as
    zero, or is clipped, and the others move the global model as they would without it."""
    network, free = without_noise(tree_from_fanouts([3]))
    dp = replace(free, clipping=Clipping("drawn", **norms))
    shards = make_shards([7, 9, 4], rate=rate)
    shards.features[0] = value
    silent = replace(shards, features=shards.features.clone(), labels=shards.labels.clone())
    silent.features[:7] = 0  # gradients of zero
    steps = 3 if "update_norm" in norms else 1
    moved = run(network, dp, schedule(1, steps), softmax, shards)
    expected = run(network, dp, schedule(1, steps), softmax, silent)
    assert moved.isfinite().all()
    assert expected.norm() > 0.01
    assert float((moved - expected).norm()) <= 0.5 * 0.3 / 3 * (1 + 1e-5)
    if rate == 1 and not np.isfinite(value):
        assert torch.equal(moved, expected)


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
def test_every_step_is_one_of_the_whole_network(softmax, local):
    """Two servers of three devices: w <- w - eta sum_j (1/6) sum_i clip(g_i) / D_j, K T times."""
    network, plan = everybody_trusted([2, 3]), schedule(ROUNDS, STEPS, local)
    shards = make_shards(SIZES, dtype=torch.float64)
    mechanism = calibrated(network, plan, shards)
    quiet = replace(mechanism.noise, steps=mechanism.noise.steps * 0)
    found = run(network, replace(mechanism, noise=quiet), plan, softmax, shards)
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


@pytest.mark.parametrize("tap", TAPS)
@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_the_cloud_s_noise_is_drawn_once(mechanism, tap):
    """Of 20,000 numbers the variance lies within 6 % but for 1e-8; twice it is far outside."""
    network, plan = everybody_trusted([2, 3]), schedule(ROUNDS, STEPS)
    model, shards = noise_alone(6)
    dp = calibrated(network, plan, shards, mechanism=mechanism)
    weights = run(network, dp, plan, model, shards, TAPS[tap])
    scale = sqrt(STEPS) * dp.noise.steps[0] if mechanism == "gradient" else dp.noise.messages[0][0]
    if mechanism == "gradient":
        assert not dp.noise.messages[0].any()
    assert float(weights.double().var()) == pytest.approx(0.25 * ROUNDS * scale**2, rel=0.06)


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_the_least_noise_of_central_privacy(mechanism):
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
