"""Split models: D's sizes."""

from __future__ import annotations

import pytest
import torch
from tests.builders import split_resnet
from torch import nn

from m2fdp.core.errors import InputError
from m2fdp.core.models.resnet import blocks_of_depth


@pytest.mark.parametrize(
    ("depth", "width", "n_parameters"),
    [(20, 16, 220_378), (20, 8, 56_754), (56, 16, 591_322), (110, 4, None)],
)
def test_a_resnet_has_as_many_parameters_as_in_print_and_layers_as_its_depth(
    depth, width, n_parameters
):
    """Convolutions of the bottlenecks' bodies, the first convolution and the last layer."""
    modules = split_resnet(depth, width, (3, 32, 32), 10).modules
    found = sum(parameter.numel() for parameter in modules.parameters())
    assert n_parameters is None or found == n_parameters
    named = [name for name, each in modules.named_modules() if isinstance(each, nn.Conv2d)]
    assert sum("shortcut" not in name for name in named) + 1 == depth


def test_modules_give_what_the_tables_say():
    """D Tables 8 to 10: 16 x 32 x 32 after md1, 256 x 8 x 8 after md7."""
    model = split_resnet(20, 16, (3, 32, 32), 10)
    features, shapes = torch.empty((2, 3, 32, 32), device="meta"), []
    for module in model.modules:
        features = module(features)
        shapes.append(tuple(features.shape[1:]))
    assert shapes == [
        (16, 32, 32),
        *[(64, 32, 32)] * 2,
        *[(128, 16, 16)] * 2,
        *[(256, 8, 8)] * 2,
        (10,),
    ]


def test_initial_weights_repeat_and_follow_from_the_seed():
    def first(seed):
        return split_resnet(20, 2, (1, 8, 8), 3, seed=seed).modules[0][0].weight

    state = torch.random.get_rng_state()
    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_initial_weights_have_he_et_als_deviation():
    """sqrt(2 / fan out), over 20,736 weights: within 3 %, five deviations of the estimate."""
    model = split_resnet(20, 16, (3, 32, 32), 10, seed=3)
    convolution = model.modules[5][0].body[3]
    assert convolution.weight.shape == (64, 64, 3, 3)
    deviation = convolution.weight.std().item()
    assert deviation == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.03)


@pytest.mark.parametrize("depth", [2, 19, 50, 57])
def test_there_is_no_such_depth(depth):
    with pytest.raises(ValueError, match="18 b"):
        blocks_of_depth(depth)


def test_images_that_can_not_be_halved_twice_are_refused():
    with pytest.raises(InputError, match=r"at least 4 x 4 pixels; these have 3 x 8"):
        split_resnet(20, 2, (1, 3, 8), 3)
