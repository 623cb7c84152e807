"""Nodes end in the bytes of the simulator, whatever the tree, the algorithm and the mechanism."""

import pytest
import torch
from tests.deployment.trees import REHEARSAL, tree_of

from m2fdp.deployment.cloud import reference
from m2fdp.deployment.links import LocalLinks, Missing, Place, Question, to_bytes
from m2fdp.deployment.node_plan import ChildrenError, spans
from m2fdp.deployment.nodes import Server

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
        {"privacy.downlink_noise": True},
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


class Lacking(LocalLinks):
    """Where the last child has gone."""

    def ask(self, question):
        replies = list(super().ask(question))
        yield from replies[:-1]
        yield Missing("gone")


def test_a_child_that_is_done_without_counts_as_if_it_had_not_moved():
    nodes = tree_of(REHEARSAL, STAR, {"algorithm": "hfl", "training.rounds": 1})
    start, missing = nodes.experiment.model.initial_vector(), []
    node, children = nodes.cloud.node, [nodes.of[child] for child in nodes.cloud.node.children]
    nodes.servers[node.name] = Server(node, Lacking(children), on_missing=missing.append)
    got = nodes.round(1, start)
    asked = Question(nodes.plan.digest, Place(1, 1, 4, "model"), to_bytes(start[None]))
    sent = [child.answer(asked).vector[0] for child in children[:-1]]
    assert missing == ["gone"]
    torch.testing.assert_close(got, start + sum(0.25 * (model - start) for model in sent))


def test_a_vector_that_is_no_model_is_refused_by_the_parent():
    nodes = tree_of(REHEARSAL, STAR, {"training.rounds": 1})
    child = nodes.of["device-1"]
    child.compute = lambda question: to_bytes(torch.full_like(question.vector, torch.nan))
    with pytest.raises(ChildrenError, match="no vector of finite numbers"):
        nodes.run()


@pytest.mark.parametrize(
    ("layer", "expected"),
    [(0, [(1, 6)]), (1, [(1, 4), (5, 6)]), (2, [(1, 2), (3, 4), (5, 6)])],
)
def test_steps_are_cut_where_models_travel_far_enough(layer, expected):
    assert list(spans((None, 2, None, 1, None, 0), 1, 6, layer)) == expected
