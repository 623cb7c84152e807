"""Dropout in a private run: whose masks they are, and what they do not depend on."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.builders import experiment_of
from tests.deployment.test_nodes import check_equal
from torch import nn

from m2fdp.core.engine.tree_process import build_process
from m2fdp.own.dropout import KeyedDropout, with_keyed_dropout
from m2fdp.processes import workers


def flat(rate, layer=nn.Dropout):
    return nn.Sequential(nn.Flatten(), layer(rate), nn.Linear(64, 10))


@pytest.fixture
def trained(monkeypatch):
    def train(rate, *changes):
        made = SimpleNamespace(made=lambda *_: flat(rate))
        monkeypatch.setitem(sys.modules, "own_layers", made)
        small = {
            "topology.fanouts": [2, 3],
            "training": {"rounds": 3, "local_steps": 2, "batch_size": 20, "backend": "sequential"},
            "model.name": "own_layers:made",
        }
        return experiment_of(small, {"training.local_aggregation": None}, *changes)

    return train


def keyed(n, key=(7, 0), first=0):
    """Records of few levels about one, no two alike, with a key behind them."""
    numbers = torch.arange(first, first + n)[:, None]
    records = 1 + ((numbers >> torch.arange(64) % 16) & 1) / 1024
    return torch.cat([records, torch.tensor(key).float().expand(n, 2)], 1)


def masks(module, records):
    """What is left of what a first layer is given, by what it was given."""
    left = []
    (layer,) = (part for part in module.modules() if isinstance(part, KeyedDropout))
    layer.register_forward_hook(lambda layer, given, out: left.append((out / given[0]).detach()))
    module(records)
    return left[-1]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 1.0])
def test_a_share_is_dropped_and_the_rest_keeps_the_mean(rate):
    module = flat(rate)
    assert with_keyed_dropout(module, (1, 8, 8))
    left = masks(module, keyed(4000))
    share = (left == 0).double()
    deviation = np.sqrt(rate * (1 - rate))
    assert abs(share.mean() - rate) <= 5 * deviation / np.sqrt(share.numel())
    assert (left[left != 0] - 1 / (1 - rate)).abs().max() < 1e-5 if rate < 1 else (left == 0).all()
    # No record and no place has more than others, and neighbours have nothing in common. Of 4,000
    # records one is six deviations away in one of 400 such keys at rate 0.9.
    for axis, n in ((0, 4000), (1, 64)):
        assert (share.mean(axis) - rate).abs().max() <= 6 * deviation / np.sqrt(n) + 1e-9
        below = (share - rate) * (share.roll(1, axis) - rate)
        assert abs(below.mean()) <= 5 * deviation**2 / np.sqrt(share.numel()) + 1e-9


def test_masks_follow_from_the_step_and_the_record_alone():
    module = flat(0.5)
    with_keyed_dropout(module, (1, 8, 8))
    every = masks(module, keyed(50))
    assert torch.equal(masks(module, keyed(20, first=30)), every[30:])
    for other in (keyed(50, key=(8, 0)), keyed(50, key=(7, 1)), keyed(50, first=50)):
        assert not torch.equal(masks(module, other), every)
    assert torch.equal(masks(module, torch.ones(50, 1, 8, 8)), torch.ones(50, 64))  # evaluation


def test_maps_are_dropped_as_wholes_and_a_layer_draws_anew_each_time():
    module = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten())
    with_keyed_dropout(module, (4, 4, 4))
    of_maps = masks(module, keyed(200)).reshape(200, 4, 16)
    assert {float(one) for one in of_maps.unique()} == {0.0, 2.0}
    assert (of_maps == of_maps[..., :1]).all()
    same = nn.Dropout(0.5)
    twice = nn.Sequential(nn.Flatten(), same, same)
    with_keyed_dropout(twice, (1, 8, 8))
    assert isinstance(twice[1], KeyedDropout) and twice[1] is twice[2]
    assert abs((twice(keyed(200)) != 0).double().mean() - 0.25) < 0.03


def vector(experiment):
    return torch.cat([values.flatten() for values in experiment.train().state_dict.values()])


@pytest.mark.parametrize("algorithm", ["m2fdp", "hfl"])
def test_a_seed_repeats_a_run(algorithm, trained):
    keys = {"algorithm": algorithm}
    alone = vector(trained(0.5, keys))
    assert torch.equal(vector(trained(0.5, keys)), alone)
    assert not torch.equal(vector(trained(0.5, keys, {"seed": 1})), alone)
    assert not torch.equal(vector(trained(0.0, keys)), alone)


@pytest.mark.parametrize("batch_size", [5, None])
def test_no_byte_depends_on_tiles_or_processes(batch_size, trained, monkeypatch):
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 0.0)
    changes = {"topology.fanouts": [20, 2], "training.batch_size": batch_size}

    def models(chunk_size=None, **keys):
        process = trained(0.5, changes, keys).process()
        if chunk_size:
            settings = replace(process.settings, chunk_size=chunk_size)
            process = build_process(process.simulation, settings)
        state = process.start()
        for _ in range(2):
            state = process.round(state, plan)
        process.executor.workers.end()
        return state.weights

    plan = trained(0.5, changes).run_plan.rounds[0]
    whole = models()
    for cut in ({"chunk_size": 1}, {"chunk_size": 5}, {"threads": 2}, {"threads": 3}):
        assert torch.equal(models(**cut), whole), cut


def test_devices_and_servers_of_a_deployment_drop_the_same(trained):
    trained(0.5)
    check_equal({"model.name": "own_layers:made", "training.batch_size": 8})


@pytest.mark.parametrize("gone", [0, 17, 49])
def test_no_mask_depends_on_which_other_records_there_are(gone):
    """Else a record that is taken away would move all others' gradients, beside its own."""
    module = flat(0.5)
    with_keyed_dropout(module, (1, 8, 8))
    records, kept = keyed(50), [n for n in range(50) if n != gone]
    assert torch.equal(masks(module, records[kept]), masks(module, records)[kept])


def test_epsilon_is_as_without(trained):
    with_dropout, without = (trained(rate).ledger() for rate in (0.5, 0.0))
    assert with_dropout.equals(without)
    assert trained(0.5).summary()["guarantee"] == "verified"
