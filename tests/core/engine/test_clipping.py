"""Norms that vanish when they are squared, and updates that are clipped layer by layer (McMahan et
al. 2018, PerLayerClip)."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.builders import premises_of
from tests.core.engine.parts import PRIVACY, make_shards, run, schedule, silent
from tests.core.engine.test_backends import sums
from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.backends import build_backend
from m2fdp.core.engine.clipping import lengths, squared_norms_of_products
from m2fdp.core.engine.learner import Clip
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.models.registry import Model, build_model
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.privacy.mechanisms import Clipping
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted


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
    layers = (slice(0, 2), slice(2, 4), slice(4, 7))
    clipped = Clip(Clipping("drawn"), layers).clip(vectors, 3.0)
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
    quiet = replace(silent(dp), clipping=dp.clipping)
    trained = run(network, quiet, planned, model, make_shards([12]))
    moved = trained - model.initial_vector()
    times = 1 if mechanism == "upload" else 3
    for layer in model.layers:
        norm = float(moved[layer].norm())
        assert norm <= times * 0.5 * 1e-3 / 2 * (1 + 1e-3)
        assert norm == pytest.approx(times * 0.5 * 1e-3 / 2, rel=2e-2)
