"""Split models: D's sizes, and what is where in their flat vectors."""

import pytest
import torch
from tests.builders import split_resnet
from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import build_model
from m2fdp.tiers.split_models import build_split_model


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


def test_images_that_can_not_be_halved_twice_are_refused():
    with pytest.raises(InputError, match=r"at least 4 x 4 pixels; these have 3 x 8"):
        split_resnet(20, 2, (1, 3, 8), 3)


RESNET = ModelConfig(name="resnet", width=2, norm="group")
CNN = ModelConfig(name="cnn12", channels=[2, 3, 4])


def split(config=RESNET, tiers=range(1, 8), shape=(1, 8, 8)):
    return build_split_model(config, shape, 10, 0, tiers)


def test_a_vector_has_weights_then_heads_then_buffers():
    model = split(ModelConfig(name="resnet", width=8), tiers=(3, 7), shape=(1, 28, 28))
    chain = sum(p.numel() for p in model.modules.parameters())
    kinds = [(part.is_weight, part.module is None) for part in model.parts]
    assert kinds == sorted(kinds, key=[(True, False), (True, True), (False, False)].index)
    assert model.weights_place == slice(0, chain)
    # The mean over places of 32 and of 128 channels, to ten classes.
    assert model.head_place(3) == slice(chain, chain + 330)
    assert model.head_place(7) == slice(chain + 330, chain + 330 + 1290)
    buffers = model.buffers_place
    # Means and variances: as many as batch norms have weights and biases.
    norms = [m for m in model.modules.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert buffers.stop - buffers.start == 2 * sum(norm.num_features for norm in norms)
    assert buffers.start == chain + 330 + 1290
    assert buffers.stop == model.n_parameters == len(model.initial_vector())


def test_a_vector_is_taken_apart_and_put_together():
    model = split(ModelConfig(name="resnet", width=2))
    vector = torch.randn(model.n_parameters)
    flat = torch.cat([tensor.flatten() for tensor in model.unflatten(vector).values()])
    assert torch.equal(flat, vector)
    first = model.unflatten(model.initial_vector())
    variances = [value for name, value in first.items() if name.endswith("running_var")]
    assert variances and all((value == 1).all() for value in variances)


def test_without_batch_norm_there_are_no_buffers():
    model = split()
    assert model.buffers_place.start == model.buffers_place.stop == model.n_parameters


@pytest.mark.parametrize("config", [RESNET, CNN], ids=["resnet", "cnn12"])
def test_without_heads_it_is_the_model_that_is_not_cut(config):
    model, whole = split(config, tiers=()), build_model(config, (1, 8, 8), 10, seed=0)
    vector = model.initial_vector()
    assert torch.equal(vector, whole.initial_vector())
    features = torch.rand((6, 1, 8, 8), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model.scores(vector, features), whole.scores(vector, features))


def test_heads_move_no_other_weight():
    some, more = split(tiers=(2,)), split(tiers=(1, 2, 5))
    a, b = some.initial_vector(), more.initial_vector()
    assert torch.equal(a[some.weights_place], b[more.weights_place])
    assert torch.equal(a[some.head_place(2)], b[more.head_place(2)])
    assert not torch.equal(b[more.head_place(1)][:10], b[more.head_place(2)][:10])


def test_a_strided_stem_halves_all_maps():
    one, two = (
        split(ModelConfig(name="resnet", width=2, stem_stride=stride), shape=(1, 28, 28))
        for stride in (1, 2)
    )
    features = torch.zeros((2, 1, 28, 28))
    assert one.modules[:1](features).shape[2:] == (28, 28)
    assert two.modules[:1](features).shape[2:] == (14, 14)
    assert two.modules[:7](features).shape[2:] == (4, 4)
    with pytest.raises(InputError, match="three times, so they need at least 8 x 8"):
        split(ModelConfig(name="resnet", width=2, stem_stride=2), shape=(1, 7, 9))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"name": "softmax"}, "models that can: resnet, cnn12"),
        ({"name": "cnn12", "loss": "own:loss"}, "is not for models in tiers"),
    ],
)
def test_models_that_can_not_be_cut(config, words):
    with pytest.raises(InputError, match=words):
        split(ModelConfig(**config), tiers=())
    with pytest.raises(InputError, match="mixes the records of a batch"):  # nor whole, by norm
        build_model(ModelConfig(name="resnet"), (1, 8, 8), 10, seed=0)
