"""Losses of a user's own: what trains with them, and what is refused."""

import sys
import types

import pytest
import torch
from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models import losses
from m2fdp.core.models.registry import build_model
from m2fdp.own.models import OneByOne


def focal(scores, labels):
    likely = scores.softmax(-1).gather(-1, labels[:, None])[:, 0]
    return -((1 - likely) ** 2) * likely.log()


def entropy(scores, labels):
    return -scores.log_softmax(-1).gather(-1, labels[:, None])[:, 0]


def squares(scores, labels):
    return (scores - nn.functional.one_hot(labels, scores.shape[-1])).square().sum(-1)


def by_number(scores, labels):
    return -scores.log_softmax(-1)[torch.arange(len(labels)), labels.tolist()]


def mean(scores, labels):
    return nn.functional.cross_entropy(scores, labels)


def shared(scores, labels):
    return entropy(scores, labels) / len(labels)


def secretly_mixed(scores, labels):
    """The values are each record's own, the gradients are not."""
    other = (scores - scores[:1]).mean(0).sum()
    return entropy(scores, labels) + other - other.detach()


def mixing(scores, labels):
    return entropy(scores - scores.mean(0) if len(scores) > 1 else scores, labels)


def drawn(scores, labels):
    return entropy(scores, labels) * torch.rand(len(labels))


def endless(scores, labels):
    return entropy(scores, labels) / scores.square().sum(-1)


def kinked(scores, labels):
    return entropy(scores, labels) + scores.square().sum(-1).sqrt()


def hits(scores, labels):
    return (scores.argmax(-1) != labels).float()


def rounded(scores, labels):
    return [1.0] * len(labels)


def shifted(scores, labels):
    labels += 1
    return entropy(scores, labels % scores.shape[-1])


def broken(scores, labels):
    return scores[labels.missing]


OWN = (
    focal, entropy, squares, by_number, mean, shared, secretly_mixed, mixing, drawn, endless,
    kinked, hits, rounded, shifted, broken,
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_losses(monkeypatch):
    """This module's functions under a name that `model.loss` can point at."""
    module = types.ModuleType("own_losses")
    for function in OWN:
        setattr(module, function.__name__, function)
    module.number = 3
    monkeypatch.setitem(sys.modules, "own_losses", module)


def build(loss, name="softmax"):
    return build_model(ModelConfig(name=name, loss=f"own_losses:{loss}"), (1, 8, 8), 3, seed=0)


@pytest.mark.parametrize("name", ["softmax", "svm", "logistic", "cnn12"])
def test_every_model_takes_one_and_claims_nothing_of_it(name):
    model = build("focal", name)
    plain = build_model(ModelConfig(name=name), (1, 8, 8), 3, seed=0)
    assert model.loss == OneByOne(focal)
    assert (model.linear, model.loss_gradient, model.curvature) == (plain.linear, None, None)
    assert torch.equal(model.initial_vector(), plain.initial_vector())
    sys.modules["own_losses"].net = lambda shape, n: nn.Sequential(nn.Flatten(), nn.Linear(64, n))
    assert build("focal", "own_losses:net").loss == model.loss


def test_gradients_in_the_scores_are_those_of_the_closed_form():
    own_model, plain = build("entropy"), build_model(ModelConfig(), (1, 8, 8), 3, seed=0)
    scores = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20).view(4, 5) % 3
    by_hand = losses.cross_entropy_gradient(scores.clone(), labels)
    assert torch.equal(plain.score_gradients(scores.clone(), labels), by_hand)
    torch.testing.assert_close(own_model.score_gradients(scores, labels), by_hand)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("mean", r"makes \(\) of scores of shape \(5, 3\).*one loss a record, \(5,\)"),
        ("drawn", "can't be vectorised over records"),
        ("by_number", r"can't be vectorised.*Error: .* \(test_own_loss.py, line \d+\)"),
        ("endless", "makes the loss inf of scores"),
        ("kinked", "a gradient that is not finite"),
        ("hits", "no gradient leads back from"),
        ("rounded", "makes list of scores"),
        ("shifted", "changes the labels"),
        ("broken", r"AttributeError: .*missing.* \(test_own_loss.py, line \d+\)"),
        ("number", "is no function but int"),
        ("absent", "can't be imported"),
    ],
)
def test_what_is_no_loss_a_record_is_refused(loss, words):
    with pytest.raises(InputError, match="package.module:function"):
        build_model(ModelConfig(loss=loss), (1, 8, 8), 3, seed=0)
    with pytest.raises(InputError, match=words) as caught:
        build(loss)
    line = str(caught.value)
    assert line.startswith(f"model.loss = 'own_losses:{loss}': ") and "\n" not in line


@pytest.mark.parametrize("name", ["softmax", "cnn12"])
def test_one_hot_labels_can_be(name):
    scores = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6) % 3
    torch.testing.assert_close(build("squares", name).loss(scores, labels), squares(scores, labels))


@pytest.mark.parametrize("loss", ["mixing", "shared", "secretly_mixed"])
def test_a_loss_that_mixes_records_sees_each_alone(loss):
    """Values and gradients are those of the records by themselves, whatever it would do beside
    others."""
    scores = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 3
    model = build(loss)
    torch.testing.assert_close(model.loss(scores, labels), losses.cross_entropy(scores, labels))
    by_record = model.score_gradients(scores.T, labels)
    expected = losses.cross_entropy_gradient(scores.T.clone(), labels)
    torch.testing.assert_close(by_record, expected)


def test_an_own_model_takes_one(monkeypatch):
    sys.modules["own_losses"].net = lambda shape, n: nn.Sequential(nn.Flatten(), nn.Linear(64, n))
    assert build("focal", "own_losses:net").loss == OneByOne(focal)


def test_a_name_without_a_module_is_refused():
    with pytest.raises(InputError, match="package.module:function"):
        build_model(ModelConfig(loss="focal"), (1, 8, 8), 3, seed=0)
