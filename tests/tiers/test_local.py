"""What a client and its server make of a round: the protocol of two parties, and torch's Adam."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from m2fdp.core.config import ModelConfig
from m2fdp.core.streams import KeyedStreams
from m2fdp.tiers.process import LocalTraining, Trainer
from m2fdp.tiers.split_models import build_split_model

TRAINING = LocalTraining(epochs=1, batch_size=4)
SHAPE = (1, 8, 8)


def split(norm="batch", tiers=range(1, 8)):
    config = ModelConfig(name="resnet", width=2, norm=norm)
    return build_split_model(config, SHAPE, 3, 0, tiers)


def records(n=18, dtype=torch.float64):
    draws = torch.Generator().manual_seed(1)
    return torch.randn((n, *SHAPE), generator=draws, dtype=dtype), torch.arange(n) % 3


def updated(model, training, cut):
    features, labels = records()
    trainer = Trainer(model, training, features)
    start, draws = model.initial_vector().double(), (KeyedStreams(5), 2)
    return start, trainer.update(start, (features, labels), (3, cut), 0.01, draws)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("cut", range(1, 8))
def test_one_step_of_both_is_the_protocol_of_two_parties_to_the_bit(norm, cut):
    """Five batches, the last of two records, in double precision."""
    model = split(norm)
    start, joint = updated(model, TRAINING, cut)
    _, two_party = updated(model, replace(TRAINING, two_party=True), cut)
    assert torch.equal(joint, two_party)
    assert not torch.equal(joint, start)


def test_two_parties_by_hand():
    """A client and a server as torch's users write them, with the batches of the keyed order."""
    model, cut = split(), 3
    _, ours = updated(model, TRAINING, cut)
    module = copy.deepcopy(model.module).double().train()
    head = module.heads[str(cut)]
    client = torch.nn.Sequential(*module.chain[:cut])
    server = torch.nn.Sequential(*module.chain[cut:])
    mine = torch.optim.Adam([*client.parameters(), *head.parameters()], 0.01)
    theirs = torch.optim.Adam(server.parameters(), 0.01)
    features, labels = records()
    order = KeyedStreams(5).generator("tier-batches", 2, 3).permutation(18)
    for batch in np.split(order, [4, 8, 12, 16]):
        sent = client(features[batch])
        mine.zero_grad()
        torch.nn.functional.cross_entropy(head(sent), labels[batch]).backward()
        mine.step()
        theirs.zero_grad()
        scores = server(sent.detach())
        torch.nn.functional.cross_entropy(scores, labels[batch]).backward()
        theirs.step()
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, tensor in model.unflatten(ours).items():
        torch.testing.assert_close(tensor, named[name].detach(), rtol=1e-9, atol=1e-12, msg=name)


def test_a_client_leaves_other_tiers_heads_as_they_are():
    model = split(tiers=(2, 5))
    start, after = updated(model, TRAINING, 5)
    assert torch.equal(after[model.head_place(2)], start[model.head_place(2)])
    assert not torch.equal(after[model.head_place(5)], start[model.head_place(5)])


def test_the_whole_model_takes_the_joint_gradient(monkeypatch):
    """SGD over one batch of all records: w - eta times the gradient of the mean loss."""
    monkeypatch.setattr(torch.optim, "Adam", torch.optim.SGD)
    model = split("group", tiers=())
    start, after = updated(model, LocalTraining(epochs=1, batch_size=18), 8)
    features, labels = records()
    vector = start.clone().requires_grad_()
    mean = model.loss(model.scores(vector, features), labels).mean()
    (gradient,) = torch.autograd.grad(mean, vector)
    torch.testing.assert_close(after, start - 0.01 * gradient, rtol=1e-6, atol=1e-9)


def test_an_epoch_uses_every_record_once_and_the_next_in_another_order():
    model = split("group", tiers=())
    batches = []
    trainer = Trainer(model, LocalTraining(epochs=2, batch_size=5), records()[0])
    trainer.module.register_forward_hook(lambda module, inputs, output: batches.append(inputs[0]))
    features = torch.arange(10.0, dtype=torch.float64).repeat_interleave(64).view(10, *SHAPE)
    labels = torch.arange(10) % 3
    start = model.initial_vector().double()
    trainer.update(start, (features, labels), (0, 8), 0.01, (KeyedStreams(0), 1))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5]
    numbers = torch.cat(batches)[:, 0, 0, 0].tolist()
    assert sorted(numbers[:10]) == sorted(numbers[10:]) == list(range(10))
    assert numbers[:10] != numbers[10:]


def test_a_client_does_not_depend_on_those_before_it():
    model = split()
    features, labels = records(dtype=torch.float32)
    mine, theirs = ((features[rows], labels[rows]) for rows in (slice(9), slice(9, 18)))
    trainer = Trainer(model, TRAINING, features)
    start, draws = model.initial_vector(), (KeyedStreams(0), 1)
    first = trainer.update(start, mine, (1, 2), 0.01, draws)
    trainer.update(start, theirs, (2, 7), 0.05, draws)
    assert torch.equal(trainer.update(start, mine, (1, 2), 0.01, draws), first)


@pytest.mark.parametrize(
    ("key", "value", "least", "most"),
    [
        ("correlation", 0.5, {1, 2, None}, {1, 2, None}),  # in the client's loss
        ("shuffling", True, set(), set(range(3, 9))),  # reaches the server only
    ],
)
def test_means_against_leakage_change_their_side_alone(monkeypatch, key, value, least, most):
    monkeypatch.setattr(torch.optim, "Adam", torch.optim.SGD)
    model, one_batch = split("group"), replace(TRAINING, batch_size=18)
    _, plain = updated(model, one_batch, 2)
    _, other = updated(model, replace(one_batch, **{key: value}), 2)
    moved = {p.module for p in model.parts if not torch.equal(plain[p.place], other[p.place])}
    assert moved and least <= moved <= most
