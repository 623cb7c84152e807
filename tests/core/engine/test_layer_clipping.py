"""Updates that are clipped layer by layer (McMahan et al. 2018, PerLayerClip)."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from tests.builders import premises_of
from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.clipping import clip_layers, flat_clip
from m2fdp.core.models.registry import Model, build_model
from m2fdp.core.privacy.calibration import build_mechanism
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.network import Network, noise_plan
from m2fdp.core.topology.trust import all_untrusted


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
def test_a_run_clips_the_updates_of_its_devices(
    run, schedule, make_shards, mechanism_for, privacy, mechanism
):
    """One device whose every layer is clipped, and no noise: each layer moves by eta S / sqrt(n)
    in a round of three steps (upload), or in every one of them, at most (gradient)."""
    privacy = privacy[mechanism].model_copy(
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
