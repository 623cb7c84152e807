"""What "verified" needs is read off the plan that is run, or the run is refused or conditional.

Each case was "verified" at an epsilon that an attack from outside exceeded.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.builders import digits, experiment_of

from m2fdp import Experiment, load_config
from m2fdp.core.algorithms import ALGORITHMS, Algorithm
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.engine.rules import GradientStep, Momentum, ProximalStep, Rules
from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.core.errors import InputError
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.tiers import ways
from m2fdp.tiers.algorithms import DTFL
from m2fdp.tiers.ways import TierAlgorithm
from m2fdp.zones.algorithm import CDP

SMALL = {"topology.fanouts": [3, 4], "training.rounds": 2, "training.local_aggregation": None}
UPLOAD = {"privacy.mechanism": "upload"}
SPLIT = {
    "model.name": "cnn12",
    "model.channels": [3, 4, 5],
    "topology.fanouts": [4],
    "topology.trust.ratios": [],
    "training.local_epochs": 4,
    "clock.model": "trained",
    "training.batch_size": 8,
    "partition.samples_per_device": 20,
}


@pytest.fixture
def planned(monkeypatch):
    """Makes an experiment of an algorithm whose plan is another's, changed."""

    def make(base, change, *changes, tiers=None):
        own = Algorithm("own", "Own", "method", lambda given: change(base.plan(given)))
        own = own if tiers is None else TierAlgorithm(**vars(own), tiers=tiers)
        monkeypatch.setitem(ALGORITHMS, "own", own)
        return Experiment.from_config(load_config(SMALL, *changes, {"algorithm": "own"}))

    return make


def ruled(**rules):
    return lambda plan: replace(plan, rules=Rules(**rules))


def scheduled(**schedule):
    return lambda plan: replace(plan, schedule=replace(plan.schedule, **schedule))


@pytest.mark.parametrize("way", ["DTFL", "FEDGKT", "FEDAVG", "SPLITFED"])
def test_a_way_that_draws_no_noise_has_no_private_plan(planned, way):
    with pytest.raises(InputError, match=r"is private, but clients that train by the way \w+ "):
        planned(DTFL, lambda plan: replace(plan, private=True), SPLIT, tiers=getattr(ways, way))


def test_a_process_that_draws_less_than_is_counted_on_trains_nothing(monkeypatch):
    monkeypatch.setattr(TreeProcess, "draws", frozenset())
    with pytest.raises(InputError, match="rounds that draw no noise of steps, which the ledger"):
        experiment_of(SMALL).train()


@pytest.mark.parametrize("mu", [10.0, -10.0, float("nan")])
def test_a_pull_that_is_no_contraction_is_refused_wherever_it_stands(planned, mu):
    for change in (ruled(local=ProximalStep(mu)), scheduled(proximal=mu)):
        with pytest.raises(InputError, match=r"pulls past the centre|is no weight of a pull"):
            planned(M2FDP, change, UPLOAD)


def test_a_pull_is_counted_from_the_rule_that_pulls(planned):
    """The rule, the schedule and the key are one pull, in the ledger and in training."""
    steps = {"training.local_steps": 4, "training.learning_rate": 0.5}
    runs = [
        planned(M2FDP, ruled(local=ProximalStep(1.5)), UPLOAD, steps),
        planned(M2FDP, scheduled(proximal=1.5), UPLOAD, steps),
        experiment_of(SMALL, UPLOAD, steps, {"training.proximal": 1.5}),
    ]
    plain = experiment_of(SMALL, UPLOAD, steps)
    noises = [each.calibrate().mechanism.noise.messages[-1].max() for each in [*runs, plain]]
    assert noises[0] == noises[1] == noises[2] != noises[3]
    trained = [each.train().state_dict for each in runs[:2]]
    assert all(torch.equal(trained[0][name], trained[1][name]) for name in trained[0])


def test_two_pulls_are_refused(planned):
    twice = ProximalStep(0.1, ProximalStep(0.1))
    for change in (ruled(local=twice), ruled(local=ProximalStep(0.1))):
        both = {"training.proximal": 0.2} if change is not None else {}
        with pytest.raises(InputError, match="plans two proximal terms"):
            planned(M2FDP, change, UPLOAD, both)


def test_steps_that_noise_shortens_have_no_pull_that_an_own_plan_brings(planned):
    short = {"training.accumulated_noise": 0.01, "training.local_steps": 8}
    with pytest.raises(InputError, match="noise = 0.01: needs .* without a proximal"):
        planned(M2FDP, scheduled(proximal=1.9), UPLOAD, short, {"training.learning_rate": 0.5})


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"local_aggregation": {0: 1}}, "is no layer of servers below the cloud"),
        ({"local_aggregation": {2: 1}}, "is no layer of servers below the cloud"),
        ({"local_aggregation": {1.0: 1}}, "is no layer of servers below the cloud"),
        ({"local_aggregation": {1: 0}}, "is no number of local steps"),
        ({"local_aggregation": {1: float("nan")}}, "is no number of local steps"),
        ({"local_steps": 0}, "is no count"),
        ({"rounds": 2.5}, "is no count"),
        ({"rounds": True}, "is no count"),
        ({"learning_rate": float("nan")}, "is no step size"),
        ({"learning_rate": float("inf")}, "is no step size"),
        ({"learning_rate": -0.1}, "is no step size"),
        ({"proximal": float("inf")}, "is no weight of a pull"),
        ({"step_size_law": "linear"}, "is unknown; valid: constant, inverse_sqrt"),
        ({"center": "elsewhere"}, "is unknown; valid: received, global"),
    ],
)
@pytest.mark.parametrize("base", [CDP, M2FDP])
def test_the_schedule_of_an_own_plan_is_checked_as_the_configured_one(
    planned, base, schedule, words
):
    with pytest.raises(InputError, match=f"algorithm = 'own': plans Schedule.*{words}"):
        planned(base, scheduled(**schedule))


@pytest.mark.parametrize("part", ["network", "schedule", "rules", "private"])
def test_a_plan_of_other_parts_is_one_line(planned, part):
    with pytest.raises(InputError, match=f"algorithm = 'own': plans {part} of type str; valid: "):
        planned(M2FDP, lambda plan: replace(plan, **{part: "yes"}))


class Twice(Schedule):
    """A schedule whose models travel up to the cloud after the first step, too."""

    def aggregation_layer(self, step):
        return 0 if step in (1, self.local_steps) else None


def test_a_schedule_that_says_one_thing_and_does_another_is_refused(planned):
    """With CDP's network devices would go on from a global model that nobody has noised."""
    change = lambda plan: replace(plan, schedule=Twice(**vars(plan.schedule)))  # noqa: E731
    with pytest.raises(InputError, match="plans schedule of type Twice; valid: Schedule"):
        planned(CDP, change, UPLOAD)


class Own(GradientStep):
    """A rule of one's own that steps as the project's does."""


class NotANumber(GradientStep):
    """A rule whose model has a length that no comparison tells anything of."""

    def step(self, models, anchors, eta, descend):
        models[:, :4] = torch.tensor([2.0**24, 2, -2, float("nan")])
        descend(models)


class OwnServer(Momentum):
    """A server rule of one's own."""


def test_a_model_whose_length_is_no_number_takes_no_step(planned):
    with pytest.raises(InputError, match="calls descend with a model so long that rounding tells"):
        planned(M2FDP, ruled(local=NotANumber())).train()


@pytest.mark.parametrize("rules", [{"local": Own()}, {"server": OwnServer(0.5)}])
@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
def test_rules_of_ones_own_are_conditional_always(planned, rules, mechanism):
    summary = planned(M2FDP, ruled(**rules), {"privacy.mechanism": mechanism}).summary()
    assert summary["guarantee"] == "conditional"
    (condition,) = summary["conditions"]
    assert "test_enforced.py" in condition
    assert "touches records only through what it is handed" in condition
    assert "epsilon_verified" not in summary


def scaled_by_their_maximum(dataset):
    """Floats that say by their scale what the brightest record holds."""
    images = dataset.images / np.float32(dataset.images[: dataset.n_train].max())
    return replace(dataset, images=images, known_scale=False)


def of_whole_numbers(dataset):
    return replace(dataset, images=(dataset.images * 255).astype(np.uint8), known_scale=False)


@pytest.mark.parametrize(
    ("change", "confirmed", "guarantee"),
    [
        (None, False, "verified"),
        (of_whole_numbers, False, "verified"),
        (scaled_by_their_maximum, False, "conditional"),
        (scaled_by_their_maximum, True, "verified"),
    ],
)
def test_floats_are_conditional_until_somebody_confirms_their_scale(change, confirmed, guarantee):
    keys = SMALL | {"dataset.confirmed": confirmed}
    summary = experiment_of(keys, change_data=change).summary()
    assert summary["guarantee"] == guarantee
    assert sum("dataset.confirmed=true says so" in line for line in summary["assumptions"]) == (
        guarantee == "conditional"
    )


def test_floats_of_a_file_are_conditional_and_whole_numbers_are_not(tmp_path):
    dataset = digits()
    images, labels, n = dataset.images, dataset.labels, dataset.n_train
    for kind, guarantee in ((np.float32, "conditional"), (np.uint8, "verified")):
        scaled = (images * (255 if kind == np.uint8 else 1)).astype(kind)
        arrays = {"x_train": scaled[:n], "y_train": labels[:n]}
        np.savez(tmp_path / "own.npz", **arrays, x_test=scaled[n:], y_test=labels[n:])
        file = {"dataset.name": "npz", "dataset.root": str(tmp_path / "own.npz")}
        experiment = Experiment.from_config(load_config(SMALL, file))
        assert experiment.summary()["guarantee"] == guarantee


def test_a_confirmation_changes_no_noise():
    change = {"change_data": scaled_by_their_maximum}
    runs = [experiment_of(SMALL, {"dataset.confirmed": said}, **change) for said in (False, True)]
    first, second = (run.train().state_dict for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_every_summary_says_what_it_assumes_of_the_data():
    for unit, persons in (("record", "one person has one record"), ("device", "lie on one device")):
        lines = experiment_of(SMALL, {"privacy.unit": unit}).summary()["assumptions"]
        assert sum("fixed ranges, known beforehand, scale the records" in x for x in lines)
        assert sum(persons in line for line in lines) == 1
