"""Nodes end in the bytes of the simulator, whatever the tree, the algorithm and the mechanism."""

import re

import numpy as np
import pytest
import torch
from tests.deployment.trees import REHEARSAL, Nodes, facts_of, tree_of

from m2fdp import load_config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.rules import TooLongError
from m2fdp.core.errors import InputError
from m2fdp.deployment.links import to_bytes
from m2fdp.deployment.node_plan import ChildrenError, spans
from m2fdp.deployment.plan import make_plan, recompute
from m2fdp.deployment.rehearsed import reference, simulated
from m2fdp.experiment import Experiment

DEEP = {"topology.fanouts": [2, 3, 2], "topology.trust.ratios": [0.5, 0.5]}
STAR = {"topology.fanouts": [4], "topology.trust.ratios": [], "training.local_aggregation": None}
GRADIENT = {"privacy.mechanism": "gradient"}
FULL = pytest.mark.full
ALGORITHMS = ["m2fdp", *(pytest.param(name, marks=FULL) for name in ("hfl", "hfl_dp", "pedpfl"))]
ALGORITHMS += [pytest.param("ldp", marks=FULL)]


def check_equal(*changes):
    nodes = tree_of(REHEARSAL, *changes)
    weights, ledger = reference(nodes.experiment)
    assert to_bytes(nodes.run()[None]) == to_bytes(weights[None])
    assert nodes.recomputed.experiment.ledger().equals(ledger)
    return nodes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
@pytest.mark.parametrize("tree", [{}, DEEP, STAR], ids=["1-2-4", "1-2-6-12", "star"])
def test_the_bytes_and_the_ledger_are_the_simulators(algorithm, mechanism, tree):
    check_equal({"algorithm": algorithm, "privacy.mechanism": mechanism, **tree})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"training.batch_size": 8}, marks=FULL),
        pytest.param({**GRADIENT, "training.batch_size": 8}, marks=FULL),
        {"training.proximal": 0.1},
        {**GRADIENT, "training.proximal": 0.1},
        {"topology.weights": "samples"},
        {"training.server.rule": "momentum"},
        {"privacy.unit": "device"},
        {**GRADIENT, "privacy.unit": "device"},
        {"privacy.mechanism": "weights"},
        {**GRADIENT, "algorithm": "cdp"},
        {**GRADIENT, "model.name": "dense"},
        {**DEEP, "training.local_steps": 7, "training.local_aggregation": {1: 3, 2: 2}},
        {"dataset.scale": "unit_norm"},
    ],
    ids=str,
)
def test_other_rules_and_noises_are_the_simulators_too(changes):
    check_equal(changes)


def walking_apart(algorithm, **changes):
    """Two groups of one label each, whose models walk away from zero by a step after the other."""
    records, steps = 30_000, 100
    images = np.ones((2 * records + 2, 1, 1, 1), dtype=np.float32)
    labels = np.zeros(len(images), dtype=np.int64)
    labels[records : 2 * records], labels[-1] = 1, 1
    config = load_config(
        {
            **REHEARSAL,
            **GRADIENT,
            "algorithm": algorithm,
            "topology.fanouts": [2, 1],
            "topology.trust.ratios": [1.0],
            "training.local_aggregation": None,
            "partition.scheme": "labels_per_device",
            "partition.labels_per_device": 1,
            "training.rounds": 1,
            "training.local_steps": steps,
            "training.learning_rate": 5.0 / (1e-3 * steps),
            "training.batch_size": None,
            "privacy.clipping_norm": 1e-3,
            "privacy.adjacency": "zero_out",
            "threads": 1,
        },
        {key.replace("__", "."): value for key, value in changes.items()},
    )
    dataset = Dataset("npz", images, labels, 2 * records, 2)
    return config, Experiment.from_config(simulated(config), dataset)


@pytest.mark.parametrize(
    ("algorithm", "changes", "who"),
    [
        ("m2fdp", {}, "server-1-0 refuses: "),
        ("hfl_dp", {}, "server-1-0 refuses: device-0 refuses: "),
        ("cdp", {"privacy__epsilon": 1e-4}, ""),
    ],
    ids=["a group's server", "a device", "the cloud"],
)
def test_a_model_too_long_for_its_next_step_ends_the_nodes_as_the_simulator(
    tmp_path, algorithm, changes, who
):
    """A group's server looked at no model: epsilon was 8.4 where 4.00 was verified."""
    config, experiment = walking_apart(algorithm, **changes)
    release = experiment.simulation().randomness.noise.release
    plan = make_plan(config, facts_of(experiment), release)
    nodes = Nodes(experiment, plan, recompute(plan), tmp_path).open_all()
    with pytest.raises(InputError, match="long before a local step") as ended:
        experiment.train()
    with pytest.raises((ChildrenError, TooLongError)) as refused:
        nodes.run()
    told = [
        re.findall(r"the model is \S+ long before", str(each.value)) for each in (ended, refused)
    ]
    assert told[0] == told[1] and str(refused.value).startswith(who)
    with pytest.raises((ChildrenError, TooLongError), match=re.escape(str(refused.value))):
        nodes.run()


def test_without_a_rehearsal_no_two_runs_are_equal_and_noise_is_as_large():
    strong = {"privacy.epsilon": 0.05, "algorithm": "hfl_dp", "training.rounds": 1}
    nodes = [tree_of(strong) for _ in range(2)]
    quiet = tree_of({**strong, "algorithm": "hfl"}).run()
    noises = [each.run() - quiet for each in nodes]
    rehearsed = tree_of(strong, REHEARSAL).run() - quiet
    assert not torch.equal(*noises)
    for noise in noises:
        assert float(noise.std()) == pytest.approx(float(rehearsed.std()), rel=0.2)
    assert abs(float(torch.corrcoef(torch.stack(noises))[0, 1])) < 0.2


def test_a_child_that_is_done_without_counts_as_if_it_had_not_moved():
    nodes = tree_of(REHEARSAL, STAR, {"algorithm": "hfl", "training.rounds": 1})
    start = nodes.experiment.model.initial_vector()
    nodes.cloud.links.meddle = lambda number, question: question if number < 3 else None
    got = nodes.round(1, start)
    sent = [nodes.of[f"device-{j}"].answer(nodes.question(start)).vector[0] for j in range(3)]
    assert nodes.missed == ["device-3"]
    torch.testing.assert_close(got, start + sum(0.25 * (model - start) for model in sent))


def test_a_vector_that_is_no_model_is_refused_by_the_parent():
    nodes = tree_of(REHEARSAL, STAR, {"training.rounds": 1})
    child = nodes.of["device-1"]
    child.compute = lambda question: to_bytes(torch.full_like(question.vector, torch.nan))
    with pytest.raises(ChildrenError, match="no vector of finite numbers"):
        nodes.run()


@pytest.mark.parametrize(
    ("layer", "expected"), [(0, [(1, 6)]), (1, [(1, 4), (5, 6)]), (2, [(1, 2), (3, 4), (5, 6)])]
)
def test_steps_are_cut_where_models_travel_far_enough(layer, expected):
    assert list(spans((None, 2, None, 1, None, 0), 1, 6, layer)) == expected
