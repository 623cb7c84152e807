"""Split models: D's sizes, and where gradients stop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from m2fdp.errors import InputError
from m2fdp.models.resnet import blocks_of_depth
from m2fdp.models.split import split_resnet


@pytest.fixture(scope="module")
def small():
    """ResNet-20 of width 2 on 8 x 8 grey images, in double precision."""
    model = split_resnet(20, 2, (1, 8, 8), 3, seed=0)
    model.modules.double()
    model.heads.double()
    return model


def records(shape=(1, 8, 8), n=5):
    draws = torch.Generator().manual_seed(1)
    return torch.randn((n, *shape), generator=draws, dtype=torch.float64), torch.arange(n) % 3


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in module.parameters()]


def clear(model):
    model.modules.zero_grad(set_to_none=True)
    model.heads.zero_grad(set_to_none=True)


@pytest.mark.parametrize(
    ("depth", "width", "n_parameters"), [(20, 16, 220_378), (20, 8, 56_754), (56, 16, 591_322)]
)
def test_a_resnet_has_as_many_parameters_as_in_print(depth, width, n_parameters):
    model = split_resnet(depth, width, (3, 32, 32), 10)
    assert sum(parameter.numel() for parameter in model.modules.parameters()) == n_parameters


def test_depth_is_the_number_of_layers_on_the_main_path():
    """Convolutions of the bottlenecks' bodies, the first convolution and the last layer."""
    for depth in (20, 56, 110):
        model = split_resnet(depth, 4, (3, 32, 32), 10)
        convolutions = [
            name
            for name, module in model.modules.named_modules()
            if isinstance(module, nn.Conv2d) and "shortcut" not in name
        ]
        assert len(convolutions) + 1 == depth


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


def test_initial_weights_repeat_and_follow_from_the_seed(small):
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


@pytest.mark.parametrize("tier", range(1, 8))
def test_the_clients_part_learns_by_its_own_loss_alone_and_the_servers_by_its(small, tier):
    """The gradient of the sum of both losses, against that of each by itself."""
    features, labels = records()
    clear(small)
    small.tier_loss(small.scores_at(tier, features), labels).sum().backward()
    both = [gradients(module) for module in small.modules]
    head = gradients(small.heads[str(tier)])
    assert all(
        grad is None
        for other, heads in small.heads.items()
        if other != str(tier)
        for grad in gradients(heads)
    )

    clear(small)
    inputs = features
    for module in small.modules[:tier]:
        inputs = module(inputs)
    nn.functional.cross_entropy(small.heads[str(tier)](inputs), labels, reduction="sum").backward()
    for of_module, module in zip(both[:tier], small.modules, strict=False):
        for ours, separate in zip(of_module, gradients(module), strict=True):
            assert torch.equal(ours, separate)
    for ours, separate in zip(head, gradients(small.heads[str(tier)]), strict=True):
        assert torch.equal(ours, separate)

    clear(small)
    sent = inputs.detach()
    for module in small.modules[tier:]:
        sent = module(sent)
    nn.functional.cross_entropy(sent, labels, reduction="sum").backward()
    for of_module, module in zip(both[tier:], small.modules[tier:], strict=True):
        for ours, separate in zip(of_module, gradients(module), strict=True):
            torch.testing.assert_close(ours, separate)


def test_the_servers_scores_are_the_whole_models(small):
    features, _ = records()
    whole = small.whole(features)
    for tier in range(1, small.n_tiers + 1):
        both = small.scores_at(tier, features)
        assert both.shape == (5, 6)
        torch.testing.assert_close(both[:, :3], whole)


@pytest.mark.parametrize("tier", [0, 8])
def test_there_is_no_such_tier(small, tier):
    with pytest.raises(ValueError, match="a tier of 1 to 7"):
        small.scores_at(tier, records()[0])


@pytest.mark.parametrize("depth", [2, 19, 50, 57])
def test_there_is_no_such_depth(depth):
    with pytest.raises(ValueError, match="18 b"):
        blocks_of_depth(depth)


def test_images_that_can_not_be_halved_twice_are_refused():
    with pytest.raises(InputError, match=r"at least 4 x 4 pixels; these have 3 x 8"):
        split_resnet(20, 2, (1, 3, 8), 3)
