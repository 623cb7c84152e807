"""What users bring: weights, rules, algorithms of their own; the proximal term beside them; and
what is refused of it."""

import sys
import types
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pytest
import torch
from tests.finished import REPOSITORY
from tests.pages import blocks, write_files
from torch import nn

from m2fdp import Experiment, load_config
from m2fdp.core.algorithms import ALGORITHMS, Algorithm
from m2fdp.core.algorithms.hfl import HFL
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.config import Config, recorded, released
from m2fdp.core.engine.rules import Rules
from m2fdp.core.engine.training import Checkpointing, Progress
from m2fdp.core.errors import InputError

PAGE = REPOSITORY / "docs" / "adding-an-algorithm.md"
SMALL = {
    "topology.fanouts": [2, 3],
    "topology.trust.ratios": [0.5],
    "partition.scheme": "quantity",
    "partition.alpha": 2.0,
    "training.rounds": 2,
    "training.local_steps": 2,
    "training.local_aggregation": None,
}
UPLOAD = {"privacy.mechanism": "upload"}


def experiment(*changes) -> Experiment:
    return Experiment.from_config(load_config(SMALL, *changes))


@pytest.fixture
def own(monkeypatch):
    """Makes an algorithm of the plan that a function makes."""

    def make(plan, **fields):
        monkeypatch.setitem(ALGORITHMS, "own", Algorithm("own", "Own", "method", plan, **fields))
        return {"algorithm": "own"}

    return make


def test_weights_by_sample_count_make_the_round_one_step_on_all_records():
    """Whole shards, one step, no clipping: the mean over devices of D_j/D is the mean over
    records, whatever the tree."""
    run = experiment(
        {"algorithm": "hfl", "topology.weights": "samples"},
        {"training.rounds": 1, "training.local_steps": 1, "training.learning_rate": 0.5},
    )
    assert len(set(run.samples.sizes.tolist())) > 1
    features, labels = run.records(run.samples.samples)
    vector = run.model.initial_vector().requires_grad_()
    run.model.loss(run.model.scores(vector, features), labels).mean().backward()
    (trained,) = run.train().state_dict.values()
    torch.testing.assert_close(trained.flatten(), -0.5 * vector.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
@pytest.mark.parametrize("algorithm", ["m2fdp", "hfl_dp", "pedpfl"])
def test_devices_weigh_by_their_records_in_training_and_ledger(algorithm, mechanism):
    chosen = {"algorithm": algorithm, "privacy.mechanism": mechanism}
    run = experiment({"topology.weights": "samples"}, chosen)
    sizes, network = run.samples.sizes, run.network
    assert network.shares(network.tree.depth, 0) == pytest.approx(sizes / sizes.sum())
    trained, ledger = run.train(), run.ledger()
    assert 3.9 < trained.epsilon <= 4
    assert ledger.loc[ledger["distrusted"], "epsilon"].max() == pytest.approx(trained.epsilon)


@dataclass(frozen=True)
class Normalised:
    """Steps that are as long as their gradients' clipping norm."""

    def __call__(self, norms, clipping_norm):
        return clipping_norm / (norms + 0.01)


def test_a_clip_factor_of_ones_own_bounds_what_the_ledger_counts(own):
    rules = Rules(clip_factor=Normalised())
    names = own(lambda given: replace(M2FDP.plan(given), rules=rules))
    run = experiment(names, {"privacy.clipping_norm": 0.2})
    assert run.summary()["epsilon_verified"] <= 4.0
    quiet = run.calibrate().mechanism
    quiet = replace(quiet, noise=replace(quiet.noise, steps=quiet.noise.steps * 0))
    process = run.process(run.simulation(mechanisms=(quiet,)))
    moved = process.round(process.start(), replace(run.run_plan.rounds[0], layers=(0,)))
    # One step of clipped gradients moves no model by more than eta C; these by most of it.
    eta = run.run_plan.rounds[0].step_size
    assert 0.05 * eta * 0.2 < float(moved.weights.norm()) <= eta * 0.2


def test_a_clip_factor_that_answers_no_norm_is_refused(own):
    rules = Rules(clip_factor=lambda norms, clipping_norm: norms.expand(2))
    names = own(lambda given: replace(M2FDP.plan(given), rules=rules))
    with pytest.raises(InputError, match="algorithm = 'own': has a clip_factor that gives no fac"):
        experiment(names)
    # Without privacy nothing rests on it.
    experiment(own(lambda given: replace(HFL.plan(given), rules=rules)))


class MixesMany(nn.Linear):
    """From nine records on."""

    def forward(self, x):
        scores = super().forward(x.flatten(1))
        return scores - scores.mean(0) if len(x) > 8 else scores


class Plain(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1))


class AsksForNumbers(nn.Linear):
    def forward(self, x):
        scores = super().forward(x.flatten(1))
        return scores * (2.0 if scores.detach().sum().item() > 1e9 else 1.0)


def mixing_loss(scores, labels):
    """From six records on."""
    shift = scores.mean(0) if len(scores) > 5 else 0.0
    return nn.functional.cross_entropy(scores - shift, labels, reduction="none")


def plain_loss(scores, labels):
    return nn.functional.cross_entropy(scores, labels, reduction="none")


@pytest.fixture
def own_module(monkeypatch):
    module = types.ModuleType("own_things")
    for kind in (Plain, MixesMany, AsksForNumbers):
        setattr(module, kind.__name__, lambda shape, n, kind=kind: kind(prod(shape), n))
    module.mixing_loss, module.plain_loss = mixing_loss, plain_loss
    monkeypatch.setitem(sys.modules, "own_things", module)


@pytest.mark.parametrize("batch", [None, 20])
@pytest.mark.parametrize(
    ("own_code", "alone"),
    [
        ({"model.name": "own_things:MixesMany"}, {"model.name": "own_things:Plain"}),
        ({"model.loss": "own_things:mixing_loss"}, {"model.loss": "own_things:plain_loss"}),
    ],
    ids=["model", "loss"],
)
def test_what_mixes_a_minibatch_sees_each_record_alone(own_module, own_code, alone, batch):
    """A private run trains what it would if nothing were mixed: nothing is tried for it."""
    plain = {"model.name": "own_things:Plain", "training.batch_size": batch, "training.rounds": 1}
    mixing, other = experiment(plain, own_code), experiment(plain, alone)
    draws = other.simulation().randomness
    trained = [
        run.train(process=run.process(run.simulation(randomness=draws))).state_dict
        for run in (mixing, other)
    ]
    for name, value in trained[0].items():
        torch.testing.assert_close(value, trained[1][name])


def test_a_private_run_needs_a_model_that_records_can_pass_alone(own_module):
    asking = {"model.name": "own_things:AsksForNumbers", "training.rounds": 1}
    with pytest.raises(
        InputError, match=r"can't be vectorised over records.*\.item\(\)"
    ) as refused:
        experiment(asking).check()
    assert refused.value.key == "model.name" and "\n" not in str(refused.value)
    experiment(asking, {"algorithm": "hfl"}).train()


def test_the_page_s_algorithms_are_small_and_have_options(project):
    write_files(PAGE, project)
    files = {block.file: block.text for block in blocks(PAGE) if block.file is not None}
    for name in ("my_cautious.py", "my_fedprox.py"):
        assert files[name].count("\n") <= 40
    fedprox = {"algorithm": "my_fedprox:FEDPROX"}
    experiment(UPLOAD, fedprox)
    with pytest.raises(InputError, match="options.mu = -1"):
        experiment(fedprox, {"options": {"mu": -1}})
    with pytest.raises(InputError, match="options.nu = 1: unknown key; valid keys are mu"):
        experiment(fedprox, {"options": {"nu": 1}})
    with pytest.raises(InputError, match="options.mu = 1: unknown key; there are none"):
        experiment({"options": {"mu": 1}})


PULLED = {"training.proximal": 0.5, "training.learning_rate": 0.25}
GLOBAL = {"training.proximal_center": "global"}
CONTROL = {
    "control.enabled": True,
    "control.gap": "papers",
    "control.smoothness": 0.5,
    "control.step_size_factor": 20.0,
    "control.tau": 12,
    "topology.trust.ratios": [1.0],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"training.proximal": 2.5, "training.learning_rate": 0.5},
            "training.proximal = 2.5: times the step size 0.5 is 1.25, which pulls past the "
            "centre; use at most 1/eta = 2",
        ),
        ({"training.proximal": -0.1}, "training.proximal = -0.1: "),
        ({"training.proximal_center": "own"}, "center = 'own': .*'received' or 'global'"),
    ],
)
def test_what_can_t_be_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as error:
        experiment(changes)
    assert "\n" not in str(error.value)


def test_a_pull_of_exactly_all_the_way_is_allowed_and_decaying_steps_are_looked_at():
    experiment({"training.proximal": 4.0, "training.learning_rate": 0.25})
    # gamma / sqrt(2) is the largest step.
    decaying = {"training.step_size": "inverse_sqrt", "training.learning_rate": 0.5}
    experiment(decaying, {"training.proximal": 2.8})
    with pytest.raises(InputError, match="times the step size 0.3536 is 1.025"):
        experiment(decaying, {"training.proximal": 2.9})


@pytest.mark.parametrize("algorithm", ["hfl", "pedpfl", "hfl_dp", "m2fdp", "hdp", "cdp"])
def test_every_algorithm_is_pulled(algorithm):
    """Two local steps between syncs: the second is pulled."""
    longer = {"training.local_steps": 4, "algorithm": algorithm}
    pulled, plain = (
        experiment(longer, changes).train().state_dict["1.weight"]
        for changes in (PULLED, {"training.learning_rate": 0.25})
    )
    assert not torch.equal(pulled, plain)


def test_it_is_the_page_s_fedprox_with_the_same_mu(project):
    """Noise apart, which is keyed by the configuration."""
    write_files(PAGE, project)
    longer = {"training.local_steps": 4, "training.local_aggregation": {1: 2}}
    ends = []
    for changes in (
        {"algorithm": "m2fdp", "training.proximal": 0.5},
        {"algorithm": "my_fedprox:FEDPROX", "options": {"mu": 0.5}},
    ):
        run = experiment(longer, {"training.learning_rate": 0.25}, changes)
        mechanism = run.calibrate().mechanism
        quiet = replace(mechanism, noise=replace(mechanism.noise, steps=mechanism.noise.steps * 0))
        process = run.process(run.simulation(mechanisms=(quiet,)))
        state = process.start()
        for plan in run.run_plan.rounds:
            state = process.round(state, plan)
        ends.append(state.weights)
    assert torch.equal(*ends)


def test_a_run_is_resumed_to_the_same_bytes(tmp_path):
    """A checkpoint after each round holds all there is: the centre is the round's own affair."""
    run = experiment(PULLED, GLOBAL, UPLOAD, {"training.rounds": 4, "training.local_steps": 4})
    kept: list[Progress] = []
    whole = run.train(checkpointing=Checkpointing(1, kept.append))
    resumed = run.train(start=kept[1])
    assert kept[1].state.round == 2
    for name, weights in whole.state_dict.items():
        assert torch.equal(weights, resumed.state_dict[name])


def test_a_controlled_run_is_pulled_and_its_ledger_counts_no_contraction():
    """Its step sizes are known in training only, and without a pull shifts are largest."""
    plain = experiment(CONTROL, UPLOAD)
    pulled = experiment(CONTROL, UPLOAD, {"training.proximal": 0.3})
    noises = [
        np.concatenate(run.calibrate().mechanism.noise.messages).tolist() for run in (plain, pulled)
    ]
    assert noises[0] == noises[1]
    metrics = pulled.train().metrics
    assert (metrics["eta"] * 0.3 <= 1).all()
    assert pulled.run().policy.decide(Progress(pulled.process().start())).plan.proximal == 0.3
    with pytest.raises(InputError, match="training.proximal = 500.0: times the step size"):
        experiment(CONTROL, {"training.proximal": 500.0}).train()


def test_no_proximal_term_leaves_the_configuration_s_record_as_it_was():
    assert not any("proximal" in key for key in recorded(Config()))
    changed = experiment(PULLED).config
    assert released(changed)["training.proximal"] == 0.5  # noise of its own
