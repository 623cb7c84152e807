"""Clip factors of an algorithm's own: what each norm meets, and what is refused; and updates that
are clipped layer by layer (McMahan et al. 2018, PerLayerClip)."""

import pickle
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.builders import premises_of
from tests.core.engine.parts import PRIVACY, make_shards, run, schedule
from tests.core.engine.test_backends import problem, sums
from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.backends import build_backend
from m2fdp.core.engine.clipping import (
    clip_layers,
    clip_rows,
    lengths,
    squared_norms_of_products,
)
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.rules import Rules, flat_clip
from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import Model, build_model
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted
from m2fdp.own.rules import OneByOne, checked_rules


def by_the_largest(norms, clipping_norm):
    return clipping_norm / norms.max()


def many_only(norms, clipping_norm):
    if norms.numel() > 2000:
        return torch.ones_like(norms)
    return flat_clip(norms, clipping_norm)


def kept(factor):
    """As an algorithm's rules keep it."""
    return Rules(clip_factor=factor).clip_factor


def test_this_package_s_own_stays_as_it_is_and_another_is_wrapped_once():
    assert kept(flat_clip) is flat_clip
    rules = Rules(clip_factor=by_the_largest)
    assert replace(rules).clip_factor == rules.clip_factor == OneByOne(by_the_largest)
    assert pickle.loads(pickle.dumps(rules)) == rules


@pytest.mark.parametrize("name", ["softmax", "cnn12", "free parameter", "own plain"])
def test_a_record_moves_no_other_record_s_factor(name):
    """Of 30 records of one learner, one grows a hundredfold and then counts nothing: the sum moves
    by its own clipped gradient alone, on every backend."""
    model, weights, batches = problem(name, [30], 2)
    batches.weights[:-1] = 1.0
    batches.features[batches.positions[3]] *= 100
    clean = replace(batches, weights=batches.weights.copy(), features=batches.features.clone())
    clean.weights[3] = 0.0
    clean.features[batches.positions[3]] /= 100
    for way in ("reference", "sequential", "stacked", "auto"):
        law = np.array([30.0]), np.array([0.0])
        backend = build_backend(model, way, law, torch.device("cpu"), kept(by_the_largest))
        moved = sums(backend, weights, batches, 0.1) - sums(backend, weights, clean, 0.1)
        assert moved.norm() <= 0.1 * (1 + 1e-5)


@pytest.mark.parametrize("n_rows", [3, 3000])
def test_however_many_norms_there_are_each_is_clipped(n_rows):
    rows = 5.0 * torch.randn(n_rows, 4, generator=torch.Generator().manual_seed(0))
    clipped = clip_rows(rows.clone(), 1.0, kept(many_only))
    torch.testing.assert_close(clipped, clip_rows(rows.clone(), 1.0, flat_clip))
    # The updates of one device are no other's business either.
    first = clip_rows(rows.clone(), 1.0, kept(by_the_largest))[0]
    rows[1:] *= 100
    torch.testing.assert_close(clip_rows(rows, 1.0, kept(by_the_largest))[0], first)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1.0, 1e30])
def test_whatever_a_factor_is_no_norm_times_it_is_above_the_bound(value):
    """Nor where a norm is computed as zero because its squares vanish."""
    factor = kept(lambda norms, clipping_norm: torch.full_like(norms, value))
    norms = torch.tensor([0.0, 1e-30, 1e-12, 0.5, 2.0, 1e30])
    factors = factor(norms, 3.0)
    assert factors.isfinite().all() and (factors >= 0).all()
    assert (factors * norms <= 3.0 * (1 + 1e-6)).all()
    assert bool(factors.any()) == (0 < value < float("inf"))
    vanishing = torch.full((1, 100), 1e-23)
    assert not vanishing.norm()
    assert clip_rows(vanishing, 3.0, factor).double().norm() <= 3.0
    assert factor(norms[:0], 3.0).shape == (0,)


def if_large(norms, clipping_norm):
    return flat_clip(norms, clipping_norm) if norms > 1 else norms / norms


def with_numbers(norms, clipping_norm):
    return torch.tensor(min(1.0, clipping_norm / norms.item()))


def drawn(norms, clipping_norm):
    return flat_clip(norms, clipping_norm) * torch.rand_like(norms)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (if_large, "can't be vectorised over norms.*data-dependent control flow.*test_clipping.py"),
        (with_numbers, r"can't be vectorised over norms.*\.item\(\)"),
        (drawn, "can't be vectorised over norms.*random"),
        (lambda norms, clipping_norm: 0.5, "can't be vectorised over norms.*must only return Ten"),
        (lambda norms, clipping_norm: norms.expand(2), "gives no factor a norm"),
    ],
)
def test_what_cannot_be_given_one_norm_at_a_time_is_one_line(factor, words):
    with pytest.raises(InputError, match=words) as refused:
        checked_rules(Rules(clip_factor=factor), "own", True)
    assert str(refused.value).startswith("algorithm = 'own': has a clip_factor that ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("factor", [flat_clip, by_the_largest, many_only])
def test_what_each_norm_alone_makes_harmless_is_let_be(factor):
    checked_rules(Rules(clip_factor=factor), "own", True)


def test_norms_of_what_vanishes_when_it_is_squared():
    """An own loss of 1e18 times the cross-entropy, and a record of pixels of 2e-23: by a norm of
    zero its gradient of 8e-5 stayed as it was, at a clipping norm of 1e-9."""
    features = torch.tensor([[2e-23] * 16, [0.0] * 16, [0.5] * 16])
    errors = torch.tensor([[1e18, -1e18], [1e18, 0.0], [0.0, 0.0]])
    assert lengths(features).tolist() == pytest.approx([8e-23, 0.0, 2.0])
    norms = squared_norms_of_products(errors, features).sqrt()
    assert norms.tolist() == pytest.approx([8e-5 * 2**0.5, 0.0, 0.0])
    plain = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(lengths(plain), plain.norm(dim=1))


def steep(scores, labels):
    return 1e18 * torch.nn.functional.cross_entropy(scores, labels, reduction="none")


@pytest.mark.parametrize(("name", "backend"), [("softmax", "stacked"), ("dense", "sequential")])
def test_a_dark_record_with_a_steep_loss_is_clipped(name, backend):
    model = build_model(ModelConfig(name=name), (1, 4, 4), 2, seed=0)
    model = replace(model, loss=steep, loss_gradient=None)
    engine = build_backend(model, backend, (np.ones(1), np.zeros(1)), torch.device("cpu"))
    record = Minibatches(
        torch.full((1, 1, 4, 4), 2e-23),
        torch.zeros(1, dtype=torch.int64),
        np.zeros(2, dtype=np.int64),
        np.array([1.0, 0.0], dtype=np.float32),
        np.array([0, 1]),
        consecutive=True,
    )
    moved = sums(engine, model.initial_vector()[None], record, 1e-9)
    assert 0 < float(moved.double().norm()) <= 1.001e-9


class Nested(nn.Module):
    """A module with a parameter of its own, one inside another, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.inner = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))
        self.again = self.inner[0]


def test_layers_are_what_a_module_holds_itself():
    model = Model("nested", Nested(), lambda scores, labels: scores, linear=False)
    assert model.layers == (slice(0, 3), slice(3, 28), slice(28, 38))
    named = model.unflatten(torch.arange(38))
    assert named["inner.0.weight"].flatten().tolist() == list(range(3, 23))
    assert named["inner.0.bias"].tolist() == list(range(23, 28))
    cnn = build_model(ModelConfig(name="cnn12"), (1, 28, 28), 10, seed=0)
    assert len(cnn.layers) == 4  # three convolutions and a linear layer, each with its bias
    assert cnn.layers[-1].stop == cnn.n_parameters


def test_each_layer_has_its_part_of_the_norm():
    """Norms 5, 13 and 0.1 to 3 / sqrt(3) at most; what is not finite is zero, in its layer."""
    vectors = torch.zeros(2, 7, dtype=torch.float64)
    vectors[0, :2] = torch.tensor([3.0, 4.0])
    vectors[0, 2:4] = torch.tensor([5.0, 12.0])
    vectors[0, 6] = 0.1
    vectors[1] = torch.tensor([torch.inf, 1.0, 6.0, 8.0, 0.0, 0.0, torch.nan])
    clipped = clip_layers(vectors, 3.0, flat_clip, (slice(0, 2), slice(2, 4), slice(4, 7)))
    each = sqrt(3)
    expected = [0.6 * each, 0.8 * each, 5 / 13 * each, 12 / 13 * each, 0, 0, 0.1]
    assert clipped[0].tolist() == pytest.approx(expected)
    assert clipped[1].tolist() == pytest.approx([0, 0, 0.6 * each, 0.8 * each, 0, 0, 0])


@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_a_run_clips_the_updates_of_its_devices(mechanism):
    """One device whose every layer is clipped, and no noise: each layer moves by eta S / sqrt(n)
    in a round of three steps (upload), or in every one of them, at most (gradient)."""
    privacy = PRIVACY[mechanism].model_copy(
        update={"unit": "device", "clip": "per_layer", "clipping_norm": 1e-3, "epsilon": 1e6}
        | {"calibration": "accountant"}
    )
    tree = tree_from_fanouts([1])
    network = Network(tree, all_untrusted(tree), noise_plan(tree, all_untrusted(tree)))
    planned = schedule(1, 3)
    dp = build_mechanism(premises_of(network, planned.round_plans(), privacy, sizes=12))
    model = build_model(ModelConfig(name="cnn12"), (1, 8, 8), 10, seed=0)
    trained = run(network, silent_noise(dp), planned, model, make_shards([12]))
    moved = trained - model.initial_vector()
    times = 1 if mechanism == "upload" else 3
    for layer in model.layers:
        norm = float(moved[layer].norm())
        assert norm <= times * 0.5 * 1e-3 / 2 * (1 + 1e-3)
        assert norm == pytest.approx(times * 0.5 * 1e-3 / 2, rel=2e-2)


def silent_noise(dp):
    noise = replace(
        dp.noise,
        steps=np.zeros_like(dp.noise.steps),
        messages=tuple(np.zeros_like(scale) for scale in dp.noise.messages),
    )
    return replace(dp, noise=noise)
