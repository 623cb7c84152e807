"""Models: sizes, losses by hand, and what is refused."""

import sys
from types import SimpleNamespace

import pytest
import torch
from tests.builders import experiment_of
from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models import losses
from m2fdp.core.models.registry import build_model
from m2fdp.own.models import DROPOUTS

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        *((name, MNIST, 7840) for name in ("svm", "softmax", "cnn12")),  # J's
        ("cnn12", CIFAR, 7840),
        # G's: 10 and 20 channels of 5 x 5 and a bias, 50 hidden numbers, ten scores.
        ("cnn2", MNIST, 21_840),
        ("cnn2", CIFAR, 31_340),
        ("lenet", MNIST, 13_426),  # as in DLG
        ("lenet", CIFAR, 15_826),
        ("dense", MNIST, 784 * 100 + 100 + 100 * 10 + 10),
    ],
)
def test_parameters_by_hand(name, shape, parameters):
    model = build_model(ModelConfig(name=name), shape, 10, seed=0)
    vector = model.initial_vector()
    assert model.n_parameters == parameters and vector.shape == (parameters,)
    assert model.scores(vector, torch.rand(2, *shape)).shape == (2, 10)
    assert name != "cnn12" or len(model.module) + 1 == 12  # the softmax is in the loss
    for own, value in zip(model.module.parameters(), model.unflatten(vector).values(), strict=True):
        assert torch.equal(own, value)


def test_initialisation_is_keyed_by_the_seed_and_leaves_torch_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = build_model(ModelConfig(name="cnn12"), (1, 8, 8), 10, seed=1).initial_vector()
    assert torch.equal(torch.rand(1), expected)
    other_seed = build_model(ModelConfig(name="cnn12"), (1, 8, 8), 10, seed=1).initial_vector()
    other = build_model(ModelConfig(name="cnn12"), (1, 8, 8), 10, seed=2).initial_vector()
    assert torch.equal(one, other_seed)
    assert not torch.equal(one, other)


def test_hinges_by_hand():
    scores = torch.tensor([[2.0, 0.5, -3.0]])
    labels = torch.tensor([1])
    # 1 + 2 for class 0, 1 - 0.5 for class 1, 0 for class 2.
    assert losses.one_vs_rest_hinge(scores, labels).tolist() == [3.5]
    # 1 + 2 - 0.5
    assert losses.crammer_singer_hinge(scores, labels).tolist() == [2.5]


def own_model(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], n_classes))


def with_batch_norm(shape, n_classes):
    return nn.Sequential(nn.BatchNorm2d(shape[0]), own_model(shape, n_classes))


class Restless(nn.Module):
    """Random, or other in training, in ways that no layer of torch's tells; zero at the start."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(64, 10)
        nn.init.zeros_(self.layer.weight)

    def forward(self, features):
        features = features.flatten(1)
        if self.kind == "drawn":
            features = features + torch.randn_like(features)
        elif self.kind == "functional":
            features = nn.functional.dropout(features, 0.5, self.training)
        elif self.kind == "trained" and self.training:
            features = 2 * features
        return self.layer(features)


def test_every_layer_of_torchs_that_drops_is_known():
    layers = (value for value in vars(nn).values() if isinstance(value, type))
    dropping_ones = {layer for layer in layers if "Dropout" in layer.__name__}
    assert dropping_ones == set(DROPOUTS)


def dropping(rate):
    return nn.Sequential(nn.Flatten(), nn.Dropout(rate), nn.Linear(64, 10))


RANDOM = {
    "dropout of another kind": (
        lambda: nn.Sequential(nn.AlphaDropout(0.5), dropping(0)),
        r"has AlphaDropout \(layer 0\)",
    ),
    "dropout between layers": (
        lambda: Rows(nn.LSTM(8, 3, num_layers=2, dropout=0.5, batch_first=True)),
        r"has LSTM \(layer rows\), which draws at random in training",
    ),
    "pool": (
        lambda: nn.Sequential(nn.FractionalMaxPool2d(2, 5), nn.Flatten(), nn.Linear(25, 10)),
        "draws at random",
    ),
    "slopes": (lambda: nn.Sequential(dropping(0), nn.RReLU()), "has RReLU"),
    "drawn": (lambda: Restless("drawn"), "draws at random"),
    "dropout of places first": (
        lambda: nn.Sequential(
            nn.Flatten(0), nn.Dropout(0.5), nn.Unflatten(0, (-1, 64)), dropping(0)
        ),
        r"can't take .*dropout of \(192,\), where 3 records must come first",
    ),
    "functional": (lambda: Restless("functional"), "draws at random"),
    "trained": (lambda: Restless("trained"), "other scores in training than in evaluation"),
}
CALM = {"rate 0": lambda: dropping(0), "plain": lambda: Restless("plain")}


@pytest.fixture
def build_own(monkeypatch):
    """A function that builds the model of an own function of shape and classes."""

    def build(make, shape=(1, 8, 8), n_classes=10):
        monkeypatch.setitem(sys.modules, "own_models", SimpleNamespace(made=make))
        return build_model(ModelConfig(name="own_models:made"), shape, n_classes, seed=0)

    return build


def test_own_modules_are_as_large_as_they_are(build_own):
    """Tied layers are one parameter: all backends take their gradients together
    (tests/core/engine/test_backends.py)."""
    assert build_own(own_model, (1, 4, 4), 3).n_parameters == 16 * 3 + 3
    assert build_own(tied, n_classes=3).n_parameters == 64 * 64 + 2 * 64 + 64 * 3 + 3


def unused(shape, n_classes):
    module = own_model(shape, n_classes)
    module.unused = nn.Linear(2, 2)
    module.forward = lambda x: module[1](module[0](x))
    return module


def tied(shape, n_classes):
    module = nn.Sequential(
        nn.Flatten(), *(nn.Linear(64, 64) for _ in "ab"), nn.Linear(64, n_classes)
    )
    module[2].weight = module[1].weight
    return module


def failing(shape, n_classes):
    raise KeyError(shape)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            with_batch_norm,
            r"has BatchNorm2d \(layer 0\), whose buffer running_mean is state that no aggregation "
            "averages and no noise covers; use nn.GroupNorm or nn.LayerNorm$",
        ),
        (
            lambda *shape: "nothing",
            r"must return a torch.nn.Module, not str \(test_registry.py, line",
        ),
        (lambda *shape: nn.Flatten(), "has no parameters to train"),
        (
            lambda shape, n: own_model(shape, n + 1),
            r"makes \(3, 11\) of 3 records of shape \(C, H, W\) = \(1, 8, 8\); valid: one "
            r"score a class, \(3, 10\) \(test_registry.py, line",
        ),
        (
            lambda shape, n: own_model((1, 8, 7), n),
            r"can't take records of shape \(C, H, W\) = \(1, 8, 8\), numbers from 0 to 1: Runtime",
        ),
        (unused, "no use of the parameter unused.weight"),
        (
            failing,
            r"can't be called with shape \(C, H, W\) = \(1, 8, 8\) and 10 classes: KeyError: "
            r"\(1, 8, 8\) \(test_registry.py, line ",
        ),
        *((lambda *shape, make=make: make(), words) for make, words in RANDOM.values()),
    ],
)
def test_refusals(build_own, make, words):
    with pytest.raises(InputError, match=words) as refusal:
        build_own(make)
    assert str(refusal.value).startswith("model.name = 'own_models:made': ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_models:absent", "can't be imported"),
        ("vgg", "none of svm, softmax, logistic, dense, lenet, cnn2"),
    ],
)
def test_names_of_no_model(name, words):
    with pytest.raises(InputError, match=words):
        build_model(ModelConfig(name=name), (1, 8, 8), 10, seed=0)


@pytest.mark.parametrize("kind", CALM)
def test_modules_that_could_draw_and_do_not(build_own, kind):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    model = build_own(lambda *shape: CALM[kind]())
    assert torch.equal(torch.rand(1), expected)
    if kind == "plain":  # what was tried with other parameters has kept its own
        assert not model.initial_vector()[:640].any()


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [("cnn12", (1, 7, 9), "at least 8 x 8"), ("cnn2", (1, 8, 28), "cnn2.*at least 16 x 16")],
)
def test_images_too_small_for_its_pools(name, shape, words):
    with pytest.raises(InputError, match=words):
        build_model(ModelConfig(name=name), shape, 10, seed=0)
    assert build_model(ModelConfig(name="cnn2"), (1, 16, 16), 2, seed=0).n_parameters > 0


class Rows(nn.Module):
    """An image's rows one after the other, through a layer of torch's."""

    def __init__(self, rows, n_classes=10):
        super().__init__()
        self.rows, self.last = rows, nn.LazyLinear(n_classes)
        self(torch.zeros(1, 1, 8, 8))

    def forward(self, features):
        rows = features[:, 0]
        if isinstance(self.rows, nn.GRUCell):
            made = rows.new_zeros(len(rows), 4)
            for at in range(8):
                made = self.rows(rows[:, at], made)
        else:
            attends = isinstance(self.rows, nn.MultiheadAttention)
            made = self.rows(*[rows] * (3 if attends else 1))
        return self.last((made if isinstance(made, torch.Tensor) else made[0]).flatten(1))


SEQUENCES = {
    "GRU cell": lambda: nn.GRUCell(8, 4),
    "LSTM": lambda: nn.LSTM(8, 3, batch_first=True),
    "GRU": lambda: nn.GRU(8, 3, batch_first=True),
    "attention": lambda: nn.MultiheadAttention(8, 2, batch_first=True),
    "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True),
}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "attention", "transformer"])
def test_layers_that_torch_trains_are_trained_and_with_privacy_where_records_pass_alone(
    build_own, kind
):
    build_own(lambda *shape: Rows(SEQUENCES[kind]()))
    model = {"model.name": "own_models:made", "training": {"rounds": 1, "local_aggregation": None}}
    assert experiment_of(model, {"algorithm": "hfl"}).train().metrics["loss"].notna().all()
    private = experiment_of(model, {"algorithm": "m2fdp"})
    assert private.train().metrics["loss"].notna().all()


def test_a_layer_through_which_no_record_passes_alone_is_named(build_own):
    """A first state that all records share; what torch needs, and what can be done."""

    class Begun(Rows):
        def forward(self, features):
            rows, begin = features[:, 0], torch.zeros(1, len(features), 3)
            return self.last(self.rows(rows, begin)[0].flatten(1))

    build_own(lambda *shape: Begun(SEQUENCES["GRU"]()))
    model = {"model.name": "own_models:made", "training": {"rounds": 1, "local_aggregation": None}}
    with pytest.raises(InputError, match="by torch.func.vmap, which privacy,") as refusal:
        experiment_of(model, {"algorithm": "m2fdp"}).check()
    assert "has GRU (layer rows), and can't be vectorised over" in str(refusal.value)
    assert str(refusal.value).endswith("; called without a first state of your own it can be")
    measured = experiment_of(model, {"algorithm": "hfl"})
    with pytest.raises(InputError, match="vmap, which what is measured needs"):
        measured.measure()


def test_cnn12_has_twelve_layers_with_the_softmax_of_its_loss():
    module = build_model(ModelConfig(name="cnn12"), (1, 28, 28), 10, seed=0).module
    assert len(module) + 1 == 12


def test_unflatten_is_the_inverse_of_the_initial_vector():
    model = build_model(ModelConfig(name="cnn12"), (1, 8, 8), 10, seed=0)
    for name, value in model.unflatten(model.initial_vector()).items():
        assert torch.equal(value, dict(model.module.named_parameters())[name])
