"""A user's own code in a private run: named, with what it is trusted with, and never "verified"
on its word."""

from dataclasses import replace

import pytest
from tests.finished import REPOSITORY
from tests.pages import write_files

from m2fdp import Experiment, load_config
from m2fdp.core.algorithms import ALGORITHMS, Algorithm
from m2fdp.core.algorithms.hfl import HFL
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.engine.rules import Rules
from m2fdp.core.errors import InputError
from m2fdp.reporting.cards import privacy_card, subject_of

PAGE = REPOSITORY / "docs" / "adding-an-algorithm.md"
SMALL = {"topology.fanouts": [3, 4], "training.rounds": 2, "training.local_aggregation": None}
FEDPROX = {"algorithm": "my_fedprox:FEDPROX"}
MOMENTUM = {"algorithm": "my_momentum:MOMENTUM"}
JOINING = {
    "training.participation": 0.5,
    "training.batch_size": None,
    "training.estimator": "fixed",
    "privacy.unit": "device",
}
# What takes part, and whether the engine bounds what it does.
PARTS = {
    "rule behind noise": (FEDPROX, {"local rule": False, "plan": True}),
    "rule with slots": (MOMENTUM, {"local rule": False, "plan": True}),
    "rule before noise": (
        FEDPROX | {"privacy.mechanism": "upload"},
        {"local rule": False, "plan": True},
    ),
    "rule of clipped models": (
        FEDPROX | {"privacy.mechanism": "weights", "privacy.unit": "device"},
        {"local rule": False, "plan": True},
    ),
    "rule of who joins": (FEDPROX | JOINING, {"local rule": False, "plan": True}),
    "plan": ({"algorithm": "my_cautious:CAUTIOUS", "privacy.mechanism": "upload"}, {"plan": True}),
    "model": ({"model.name": "my_models:small_net"}, {"model": True}),
    "loss": ({"model.name": "svm", "model.loss": "my_losses:focal"}, {"loss": True}),
    "split": ({"partition.scheme": "my_partitions:by_edge"}, {"split": False}),
    "data": ({"dataset.name": "my_data:bars"}, {"data set": False}),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with all code of the page."""
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    write_files(PAGE, tmp_path)


@pytest.mark.parametrize("name", PARTS)
def test_own_code_is_named_with_what_it_is_trusted_with(project, name):
    changes, parts = PARTS[name]
    experiment = Experiment.from_config(load_config(SMALL, changes))
    summary = experiment.summary()
    assert {part["part"]: part["enforced"] for part in summary["own_code"]} == parts
    verified = all(parts.values())
    assert summary["guarantee"] == ("verified" if verified else "conditional")
    for part in summary["own_code"]:
        file = part["name"].partition(":")[0]
        sentence = f"{file}.py, the {part['part']} of {part['key']}={part['name']}, "
        assert sum(line.startswith(sentence) for line in summary["assumptions"]) == 1
    warned = [line for line in experiment.warnings() if line.startswith("ε is conditional")]
    of_scale = name == "data"  # which are floats, too
    assert len(warned) == list(parts.values()).count(False) + of_scale


def test_the_zones_table_claims_nothing_behind_an_own_rule(project):
    """It adds up the noise of a zone, which an own rule may have made something else of."""
    for changes, there in (({}, True), (FEDPROX, False)):
        one_step = {"training.local_steps": 1}
        table = Experiment.from_config(load_config(SMALL, one_step, changes)).zones_table()
        assert (len(table) > 0) == there
        assert "epsilon" in table.columns


def test_without_own_code_or_without_privacy_nothing_is_said_of_any(project):
    for changes in ({}, {"algorithm": "hfl", "model.name": "my_models:small_net"}):
        assert "own_code" not in Experiment.from_config(load_config(SMALL, changes)).summary()


class Nothing:
    """A server rule of one's own."""

    def start(self, weights):
        return {}

    def step(self, weights, aggregate, slots):
        return aggregate, slots


def test_other_rules_of_an_algorithm_are_named_too(monkeypatch):
    rules = Rules(server=Nothing(), clip_factor=lambda norms, norm: 0.5 * norm / (norms + norm))
    for base, parts in ((M2FDP, ["server rule", "clip factor"]), (HFL, [])):
        plan = lambda given, base=base: replace(base.plan(given), rules=rules)  # noqa: E731
        monkeypatch.setitem(ALGORITHMS, "own", Algorithm("own", "Own", "method", plan))
        summary = Experiment.from_config(load_config(SMALL, {"algorithm": "own"})).summary()
        assert [part["part"] for part in summary.get("own_code", [])] == parts


@pytest.mark.parametrize("name", ["rule behind noise", "plan", "data"])
def test_the_card_names_it_and_says_verified_only_where_it_is(project, name):
    changes, parts = PARTS[name]
    experiment = Experiment.from_config(load_config(SMALL, changes))
    card = privacy_card(subject_of(experiment), experiment.summary(), None, None, "kedro run")
    for text in (card.markdown(), card.shortened(3000)):
        assert "## Code of your own" in text
        for key, value in changes.items():
            assert (f"`{key}={value}`" in text) == (":" in value)
        verified = all(parts.values())
        assert ("erified" in text) == verified
        assert ("It holds if my_" in text) == (not verified)


def test_a_rule_with_slots_is_refused_before_noise(project):
    changes = MOMENTUM | {"privacy.mechanism": "upload"}
    with pytest.raises(InputError, match="privacy.mechanism = 'upload': .* needs noise at"):
        Experiment.from_config(load_config(SMALL, changes))


def test_a_rule_with_slots_is_audited_and_sees_one_learner_at_a_time(project):
    quick = {"training.local_steps": 2, "audit.repetitions": 300, "privacy.delta": 0.005}
    experiment = Experiment.from_config(load_config(SMALL, MOMENTUM, quick))
    found = experiment.audit()
    assert (found["epsilon_lower"] <= found["epsilon_upper"]).all()
    seen = set()
    import my_momentum

    step = my_momentum.Momentum.step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            my_momentum.Momentum,
            "step",
            lambda rule, models, *others: seen.add(len(rule.v)) or step(rule, models, *others),
        )
        experiment.train()
    assert seen == {1}


def test_what_a_rule_with_slots_gets_wrong_is_one_line(monkeypatch):
    class Wrong:
        anchored, reports = False, frozenset()

        def first(self, weights):
            return {"v": weights.clone()}

        def of(self, device, server):
            return self

        def step(self, models, anchors, eta, descend):
            descend(models)

        def report(self, device, steps, eta):
            return device["other"], {}

    plan = lambda given: replace(M2FDP.plan(given), rules=Rules(local=Wrong()))  # noqa: E731
    monkeypatch.setitem(ALGORITHMS, "own", Algorithm("own", "Own", "method", plan))
    experiment = Experiment.from_config(load_config(SMALL, {"algorithm": "own"}))
    with pytest.raises(InputError, match="algorithm = 'own': fails in a local step: KeyError"):
        experiment.check()
