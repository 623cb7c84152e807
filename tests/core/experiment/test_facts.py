"""What features need: every fact that a feature needs has a case here that breaks it, and so has
every wrong value; the page shows all of them."""

import runpy
from dataclasses import replace

import numpy as np
import pytest
from tests.finished import REPOSITORY

from m2fdp import load_config
from m2fdp.adversaries.facts import ATTACK, PLANNED_ROUNDS, check_attack, check_audit
from m2fdp.convergence.facts import BOUND, EQUAL_ROUNDS, check_bound
from m2fdp.core.algorithms import ALGORITHMS, build_plan
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.engine.rules import Rules
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.experiment.checks import check_config, features_of_runs
from m2fdp.core.experiment.facts import refusals, refuse, told
from m2fdp.core.experiment.request import Request, idle_keys
from m2fdp.core.topology.network import Participation
from m2fdp.deployment.facts import DEPLOYED, check_deployment
from m2fdp.scaffold.algorithm import SCAFFOLD, CorrectedStep
from m2fdp.tiers.algorithms import M2FDP_TIERS

BASE = {
    "topology.fanouts": [2, 3],
    "training.rounds": 2,
    "training.local_steps": 2,
    "training.local_aggregation": None,
}


class Anchored:
    anchored = True

    def step(self, models, anchors, eta, descend):
        descend(models)


def own(name, algorithm=M2FDP, **changes):
    def plan(given):
        return replace(algorithm.plan(given), **changes)

    return replace(algorithm, name=name, plan=plan)


def _keeping_and_split(given):
    return replace(M2FDP_TIERS.plan(given), rules=SCAFFOLD.plan(given).rules)


OWN = (
    own("own_anchored", rules=Rules(local=Anchored())),
    own("own_unheard", rules=Rules(local=CorrectedStep())),
    replace(SCAFFOLD, name="own_split", plan=_keeping_and_split),
)
UPLOAD = {"privacy.mechanism": "upload"}
DEVICE = {**UPLOAD, "privacy.unit": "device"}
CHANCE = {"training.participation": 0.5}
FIXED = {"training.estimator": "fixed"}
TRUSTED = {"topology.trust.ratios": [1.0]}
SUMS = {"secure_aggregation.layers": [1]}
MASKS = {**SUMS, "secure_aggregation.protocol": "masks"}
CENTER = {"training.proximal": 0.1, "training.proximal_center": "global"}
RESNET = {"model.name": "resnet", "model.width": 2}
GROUPS = {**RESNET, "model.norm": "group"}
CNN = {"model.name": "cnn12", "model.width": 16, "model.channels": [2, 3, 4]}
STAR = {"topology.fanouts": [4], "topology.trust.ratios": []}
TIERS = {**STAR, **RESNET, "algorithm": "dtfl"}
CONTROL = {"control.enabled": True}
KEEPING = {"algorithm": "scaffold"}
SPLIT = {**TRUSTED, **GROUPS, "algorithm": "m2fdp_tiers"}
EXPOSED = {**GROUPS, "algorithm": "m2fdp_tiers", "tiering.offload_to": "anyone"}
EXPOSED |= {"privacy.adjacency": "zero_out"}
ELECTED = {"topology.fanouts": [2, 4], "topology.super_nodes.kind": "elected"}
WEIGHTS = {"privacy.mechanism": "weights"}

CLOCK = {"clock.model": "trained"}
LIRA = {"attack.method": "lira"}
HOLDING = {"partition.held_out_by": "devices", "partition.validation_fraction": 0.1}
SAMPLES = {"topology.weights": "samples"}
NUMBERS = {"model.name": "linear", "partition.scheme": "iid"}
MULTIPLIER = {"privacy.calibration": "multiplier"}

# By the key that is refused, and what it does not go with.
BY_CHANCE = "devices that join by chance, or whose updates are weighed"
KEEPS = "algorithms whose local rule keeps something of devices (scaffold)"
EXPOSES = "activations that go to a server that nobody trusts (tiering.offload_to: anyone)"
SPLITS = "algorithm: m2fdp_tiers"
IN_TIERS = "algorithms that train in tiers"
OWN_RULES = "local rules of one's own, unless noise is at every step"
CLEAR_ZONES = "topology.super_nodes.kind: elected, in zones whose devices add no noise"
SHORTENED = {"training.accumulated_noise": 0.1}
MOMENTUM = {"training.server.rule": "momentum"}
OWN_SERVER = "algorithms with a server rule of their own (fedyogi, scaffold)"
OF_NUMBERS = "labels that are numbers (model.name: linear, model.loss: squared or huber)"
RAY = "execution.engine: ray"
ON_RAY = {"execution.engine": "ray"}
# fmt: off
CASES = {
    ("training.least_weight", "training.estimator: clipped"):
        {**DEVICE, "training.estimator": "clipped"},
    ("training.estimator", "privacy.mechanism: gradient"):
        {"privacy.unit": "device", "training.estimator": "clipped", "training.least_weight": 2},
    ("training.participants", BY_CHANCE): {**CHANCE, "training.participants": 2},
    ("training.participation", "control.enabled"): {**CHANCE, **CONTROL},
    ("training.estimator", "control.enabled"): {**DEVICE, **FIXED, **CONTROL},
    ("secure_aggregation.layers", "training.participation"):
        {**CHANCE, "secure_aggregation.layers": [2]},
    ("training.participation", "privacy.calibration: paper"):
        {**CHANCE, **UPLOAD, "privacy.calibration": "paper"},
    ("training.estimator", "privacy.calibration: paper"):
        {**FIXED, **WEIGHTS, "privacy.unit": "device", "privacy.calibration": "paper"},
    ("training.local_aggregation", BY_CHANCE):
        {**TRUSTED, **CHANCE, **DEVICE, "training.local_aggregation": {1: 1}},
    ("training.proximal_center", "algorithms whose local rule is anchored"):
        {**CENTER, "algorithm": "own_anchored"},
    ("training.proximal_center", "secure_aggregation.protocol: masks"): {**CENTER, **MASKS},
    ("secure_aggregation.protocol", "local rules of one's own"):
        {**MASKS, "algorithm": "own_anchored"},
    ("training.accumulated_noise", "a mechanism of one's own"):
        {**SHORTENED, "privacy.mechanism": "tests.core.privacy.own_mechanism:QUIETER"},
    ("training.estimator", EXPOSES): {**EXPOSED, **FIXED, "privacy.unit": "device"},
    ("partition.held_out_by", "training.estimator"): {**HOLDING, **DEVICE, **FIXED},
    ("training.proximal_center", "privacy.unit: device, unless noise is at every step"):
        {**CENTER, **DEVICE},
    ("training.proximal", OWN_RULES):
        {**UPLOAD, "training.proximal": 0.1, "algorithm": "own_anchored"},
    ("privacy.mechanism", KEEPS): {**KEEPING, **UPLOAD},
    ("training.participation", KEEPS): {**KEEPING, **CHANCE},
    ("training.estimator", KEEPS): {**KEEPING, **FIXED, "privacy.unit": "device"},
    ("secure_aggregation.dropout", KEEPS): {**KEEPING, **SUMS, "secure_aggregation.dropout": 0.1},
    ("control.enabled", KEEPS): {**KEEPING, **CONTROL},
    ("algorithm", KEEPS): {**SPLIT, "algorithm": "own_split"},
    ("algorithm", "a server rule that does not hear"): {"algorithm": "own_unheard"},
    ("privacy.mechanism", EXPOSES): {**EXPOSED, **UPLOAD},
    ("privacy.adjacency", EXPOSES): {**EXPOSED, "privacy.adjacency": "add_remove"},
    ("privacy.unit", EXPOSES): {**EXPOSED, "privacy.unit": "device"},
    ("training.participation", EXPOSES): {**EXPOSED, **CHANCE},
    ("privacy.label_epsilon", EXPOSES):
        {**EXPOSED, "privacy.labels": "randomised", "privacy.label_epsilon": 9},
    ("privacy.mechanism", SPLITS): {**SPLIT, **UPLOAD},
    ("privacy.unit", SPLITS): {**SPLIT, "privacy.unit": "device"},
    ("model.name", SPLITS): {**TRUSTED, "algorithm": "m2fdp_tiers"},
    ("model.norm", SPLITS): {**TRUSTED, **RESNET, "algorithm": "m2fdp_tiers"},
    ("secure_aggregation.layers", SPLITS): {**SPLIT, **SUMS},
    ("training.participants", SPLITS): {**SPLIT, "training.participants": 2},
    ("topology.super_nodes.kind", SPLITS): {**SPLIT, **ELECTED},
    ("training.backend", SPLITS): {**SPLIT, "training.backend": "stacked"},
    ("tiering.profile", "algorithm: m2fdp_tiers"): {**SPLIT, "tiering.profile": "paper"},
    ("training.backend", "algorithm: fedgkt"):
        {**TIERS, "algorithm": "fedgkt", "training.backend": "reference"},
    ("model.name", IN_TIERS): {**STAR, "algorithm": "dtfl"},
    ("tiering.tiers", "model.name"): {**TIERS, **CNN, **CLOCK},
    ("clock.model", "model.name: all but resnet"): {**TIERS, **CNN, "tiering.tiers": 3},
    ("training.batch_size", IN_TIERS): {**TIERS, "training.batch_size": 2.5},
    ("training.evaluate_every", "training.plateau.factor"):
        {**TIERS, "training.evaluate_every": 2, "training.plateau.factor": 0.9},
    ("training.backend", IN_TIERS): {**TIERS, "training.backend": "stacked"},
    ("training.step_size", IN_TIERS): {**TIERS, "training.step_size": "inverse_sqrt"},
    ("training.participation", IN_TIERS): {**TIERS, **CHANCE},
    ("training.proximal", IN_TIERS): {**TIERS, "training.proximal": 0.1},
    ("topology.weights", IN_TIERS): {**TIERS, **SAMPLES},
    ("secure_aggregation.layers", IN_TIERS): {**TIERS, **SUMS},
    ("privacy", "privacy.noise_multiplier: null"): MULTIPLIER,
    ("privacy.mechanism", "algorithm: global_dp"): {"algorithm": "global_dp"},
    ("privacy.mechanism", "nodes that add noise below trusted ground's edge"):
        {"algorithm": "hdp_mixed", "zones": {"device_noise_of": "devices", "server_noise": 0,
         "cloud_noise": True}},
    ("privacy.mechanism", "devices that step with the cloud beside others"):
        {"algorithm": "hdp_mixed", "zones": {"server_noise": 0, "cloud_noise": True}},
    ("threat.distrusted", CLEAR_ZONES):
        {**ELECTED, **TRUSTED, "threat.distrusted": ["cloud", "siblings"]},
    ("algorithm", CLEAR_ZONES): {**ELECTED, "algorithm": "cdp"},
    ("threat.distrusted", "topology.super_nodes.kind: fixed"):
        {"threat.distrusted": ["cloud", "super_nodes"]},
    ("threat.distrusted", "a network that trusts them"):
        {"algorithm": "cdp", "threat.distrusted": ["cloud", "public"]},
    ("threat.colluding", "the network"): {"threat.colluding": 9999},
    ("secure_aggregation.protocol",
     "algorithms without privacy, or with a local rule of their own"):
        {**MASKS, "algorithm": "hfl"},
    ("secure_aggregation.decode",
     "trusted servers between, under privacy.mechanism: gradient with several local steps"):
        {"secure_aggregation.layers": [2], "secure_aggregation.decode": "cloud"},
    ("control.enabled", "algorithm: all but m2fdp"): {**CONTROL, "algorithm": "hfl_dp"},
    ("training.participants", "control.enabled"): {**CONTROL, "training.participants": 2},
    ("control.enabled", "topology.fanouts: of one number"): {**CONTROL, **STAR},
    ("training.local_aggregation", "control.enabled"):
        {**CONTROL, "topology.fanouts": [2, 2, 2], "topology.trust.ratios": [0.5, 0.5],
         "training.local_aggregation": {2: 1}},
    ("control.tau", "training.rounds, control.max_local_steps"): {**CONTROL, "control.tau": 81},
    ("privacy.mechanism", "control.enabled"): {**CONTROL, **WEIGHTS},
    ("secure_aggregation.layers", "control.gap: papers"):
        {**CONTROL, **SUMS, "control.gap": "papers"},
    ("topology.super_nodes.kind", "control.enabled"): {**CONTROL, **ELECTED},
    ("privacy.calibration", "control.enabled"):
        {**CONTROL, **MULTIPLIER, "privacy.noise_multiplier": 1},
    ("topology.weights", "control.enabled"): {**CONTROL, **SAMPLES},
    ("training.accumulated_noise", "control.enabled"): {**SHORTENED, **CONTROL},
    ("training.accumulated_noise", "algorithms that train in tiers or split models"):
        {**SHORTENED, **SPLIT},
    ("training.accumulated_noise",
     "server rules under which noise does not add up (yogi, and one's own)"):
        {**SHORTENED, "training.server.rule": "yogi"},
    ("training.accumulated_noise", "local rules of one's own"):
        {**SHORTENED, "algorithm": "own_anchored"},
    ("training.accumulated_noise", "privacy.mechanism: weights, or one's own"):
        {**SHORTENED, **WEIGHTS},
    ("training.accumulated_noise", "training.proximal above 0, unless noise is at every step"):
        {**SHORTENED, **UPLOAD, "training.proximal": 0.1},
    ("training.server.rule", OWN_SERVER): {**MOMENTUM, **KEEPING},
    ("training.server.rule", "algorithms that average no models (fedgkt)"):
        {**MOMENTUM, **TIERS, "algorithm": "fedgkt"},
    ("training.server.rule", "control.enabled"): {**MOMENTUM, **CONTROL},
    ("algorithm", RAY): {**SPLIT, **ON_RAY},
    ("secure_aggregation.protocol", RAY):
        {**ON_RAY, **UPLOAD, "secure_aggregation.layers": [2], "secure_aggregation.protocol":
         "masks"},
    ("training.backend", RAY): {**ON_RAY, "training.backend": "stacked"},
    ("device", RAY): {**ON_RAY, "device": "cuda"},
    ("training.metrics", "partition.held_out_by: devices"): {
        **HOLDING,
        "training.metrics": ["tests.own_metrics:BALANCED"],
    },
    ("partition.held_out_by", "algorithms without privacy"): {**HOLDING, "algorithm": "hfl"},
    ("partition.held_out_by", "algorithms that train in tiers or split models"):
        {**HOLDING, **SPLIT},
    ("partition.held_out_by", "privacy.unit: device"): {**HOLDING, **DEVICE},
    ("partition.held_out_by", "a model of your own"):
        {**HOLDING, "model.name": "tests.builders:digits"},
    ("partition.held_out_by", "privacy.calibration: paper, multiplier"):
        {**HOLDING, **UPLOAD, "privacy.calibration": "paper"},
    ("partition.held_out_by", "secure_aggregation.layers"): {**HOLDING, **SUMS},
    ("partition.held_out_by", "topology.super_nodes.kind: elected"):
        {**HOLDING, **ELECTED, **UPLOAD, "algorithm": "hfl_dp"},
    ("partition.held_out_by",
     "training.participation, and estimators of devices that join by chance"):
        {**HOLDING, **CHANCE},
    ("partition.held_out_by", OF_NUMBERS): {**HOLDING, **NUMBERS},
    ("partition.scheme", OF_NUMBERS): {**NUMBERS, "partition.scheme": "dirichlet"},
}
# fmt: on
THREE = "pipelines audit (canaries), bound and attack"
NEIGHBOURS = "an audit by neighbours"
NODES = "the command m2fdp plan"
NODES_OF_SUMS = f"{NODES}, secure_aggregation.layers"
RECONSTRUCTS = "attack.method: all but lira"
# Of what is done with a run that is none of these itself.
# fmt: off
TESTS = {
    ("partition.held_out_by", THREE): HOLDING,
    ("algorithm", THREE): TIERS,
    ("control.enabled", THREE): CONTROL,
    ("control.enabled", NEIGHBOURS): {**CONTROL, "audit.method": "neighbours"},
    ("training.participation", THREE): CHANCE,
    ("training.estimator", THREE): {**FIXED, "privacy.unit": "device"},
    ("algorithm", f"{THREE}, of whole models"): SPLIT,
    ("algorithm", "pipeline bound"): KEEPING,
    ("training.server.rule", "pipeline bound"): MOMENTUM,
    ("training.proximal", "pipeline bound"): {"training.proximal": 0.1},
    ("privacy.mechanism", "pipeline bound"): WEIGHTS,
    ("attack.observer", "attack.method: lira"): {**LIRA, "attack.observer": "cloud"},
    ("model.name", "pipeline attack"): NUMBERS,
    ("algorithm", RECONSTRUCTS): KEEPING,
    ("attack.round", "training.rounds"): {"attack.round": 3},
    ("training.participants", RECONSTRUCTS): {"training.participants": 2},
    ("secure_aggregation.protocol", RECONSTRUCTS): MASKS,
    ("secure_aggregation.dropout", RECONSTRUCTS): {**SUMS, "secure_aggregation.dropout": 0.1},
    ("topology.super_nodes.kind", RECONSTRUCTS): ELECTED,
    ("features.map", RECONSTRUCTS): {"features.map": "scattering"},
    ("attack.observer", "a network that trusts the cloud"): {"algorithm": "cdp"},
    ("algorithm", NODES): SPLIT,
    ("model.name", NODES): NUMBERS,
    ("algorithm", f"{NODES}, of plain steps"): KEEPING,
    ("training.participation", NODES): CHANCE,
    ("training.participants", NODES): {"training.participants": 2},
    ("training.estimator", NODES): {**FIXED, "privacy.unit": "device"},
    ("training.proximal_center", NODES): {**CENTER, "training.local_aggregation": {1: 1}},
    ("training.backend", NODES): {"training.backend": "stacked"},
    ("topology.super_nodes.kind", NODES): ELECTED,
    ("control.enabled", NODES): CONTROL,
    ("secure_aggregation.protocol", NODES_OF_SUMS): SUMS,
    ("secure_aggregation.layers", NODES_OF_SUMS): {**MASKS, "privacy.mechanism": "gradient"},
    ("secure_aggregation.decode", NODES_OF_SUMS):
        {**MASKS, **UPLOAD, "secure_aggregation.decode": "cloud", "training.local_aggregation":
         None},
    ("secure_aggregation.dropout", NODES_OF_SUMS):
        {**MASKS, **UPLOAD, "secure_aggregation.dropout": 0.1},
    ("partition.held_out_by", NODES): HOLDING,
    ("device", NODES): {"device": "cuda"},
}
# fmt: on


def check_equal_rounds(config, plan):
    refuse(EQUAL_ROUNDS, Request(config, plan))


# What is done with a run, by the words of a case: its features, and the check.
VERBS = {
    THREE: (EQUAL_ROUNDS, check_equal_rounds),
    NEIGHBOURS: (PLANNED_ROUNDS, check_audit),
    "pipeline bound": (BOUND, check_bound),
    NODES: (DEPLOYED, lambda config, plan: check_deployment(config)),
    "": (ATTACK, check_attack),
}
FACTS_PAGE = runpy.run_path(str(REPOSITORY / "docs/facts.py"))
EVERY = FACTS_PAGE["features_told"]()  # before algorithms of one's own are there
# What is shown in place of the key's value.
SHOWN = {
    ("secure_aggregation.layers", "training.participation"): 2,
    ("training.local_aggregation", BY_CHANCE): 1,
    ("training.local_aggregation", "control.enabled"): 2,
    ("threat.distrusted", CLEAR_ZONES): "siblings",
    ("threat.distrusted", "topology.super_nodes.kind: fixed"): "super_nodes",
    ("threat.distrusted", "a network that trusts them"): "cloud",
    ("leakage", SPLITS): BLOCK,
    ("attack.observer", "a network that trusts the cloud"): "cloud",
    ("privacy", "privacy.noise_multiplier: null"): BLOCK,
}
# Lines that another fact's or value's of the same case comes before.
LATER = {("training.estimator", EXPOSES), ("partition.held_out_by", "training.estimator")}


@pytest.fixture(autouse=True)
def own_algorithms(monkeypatch):
    for algorithm in OWN:
        monkeypatch.setitem(ALGORITHMS, algorithm.name, algorithm)


def asked(row):
    """The configuration of a case, its features, and the check that refuses it."""
    config = load_config(BASE, {**CASES, **TESTS}[row])
    request = Request(config, build_plan(config))
    if row in CASES:
        return request, features_of_runs(), lambda config, plan: check_config(config)
    return request, *next(verb for words, verb in VERBS.items() if row[1].startswith(words))


@pytest.mark.parametrize("row", [*CASES, *TESTS], ids=" beside ".join)
def test_what_a_feature_needs_is_refused_by_the_key_that_breaks_it(row):
    request, features, check = asked(row)
    assert not list(idle_keys(request)), "every key of the case is read"
    lines = list(refusals(features, request))
    with pytest.raises(InputError) as caught:
        check(request.config, request.plan)
    assert str(caught.value) == str(lines[0])
    key, value = row[0], SHOWN.get(row, request.value(row[0]))
    told = [line for line in lines if (line.key, line.value) == (key, value)]
    assert told and (told[0] is lines[0] or row in LATER)
    for line in lines:
        assert "\n" not in str(line) and "{" not in str(line)
        assert " needs " not in f" {line.remedy}" or "; use " in line.remedy


def test_every_need_has_a_case():
    met = set()
    for row in (*CASES, *TESTS):
        request, features, _ = asked(row)
        for feature in features:
            if feature.there(request):
                met |= {(feature, fact) for fact in feature.needs if not told(fact).holds(request)}
    assert met == {(feature, fact) for feature in EVERY for fact in feature.needs}


# What a plan of one's own may say of who takes part, in place of a key.
PLANNED = {
    "training.participation": {"participation": Participation(0.5, np.ones(6))},
    "training.participants": {"participants": 2},
    "training.estimator": {"participation": Participation(1.0, np.ones(6), 1.0)},
}


@pytest.mark.parametrize(
    "row",
    [row for row in {**CASES, **TESTS} if row[0] in PLANNED and row[0] in {**CASES, **TESTS}[row]],
    ids=" beside ".join,
)
def test_who_takes_part_is_asked_of_the_plan(monkeypatch, row):
    """A plan that says itself what a key would is refused by the plan's name."""
    key, _ = row
    given = {**CASES, **TESTS}[row] | {key: None}
    if key == "training.estimator":
        unread = ("training.estimator", "training.least_weight")
        given = {name: value for name, value in given.items() if name not in unread}
    usual = ALGORITHMS[given.get("algorithm", "m2fdp")]

    def plan(asked):
        planned = usual.plan(asked)
        return replace(planned, network=replace(planned.network, **PLANNED[key]))

    monkeypatch.setitem(ALGORITHMS, "own joining", replace(usual, name="own joining", plan=plan))
    _, features, check = asked(row)
    config = load_config(BASE, given | {"algorithm": "own joining"})
    request = Request(config, build_plan(config))
    lines = [line for line in refusals(features, request) if line.key == key]
    assert any("(algorithm: own joining)" in str(line.value) for line in lines)
    with pytest.raises(InputError):
        check(config, request.plan)


def test_the_base_is_refused_by_none():
    config = load_config(BASE)
    for check in (check_equal_rounds, check_bound, check_attack):
        check(config, check_config(config))
    check_deployment(config)


def test_the_page_has_the_facts_and_who_needs_them():
    written = FACTS_PAGE["PAGE"].read_text(encoding="utf-8")
    assert written == FACTS_PAGE["page"](), "run `python docs/facts.py`"
    needs = {(feature, fact) for feature in EVERY for fact in feature.needs}
    rows = written.partition("needed by |")[2].splitlines()[2:]
    assert sum(len(row.split("|")[-2].split(",")) for row in rows) == len(needs)
