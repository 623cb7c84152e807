"""However a simulation is cut into blocks of subtrees, and whoever computes them: equal bytes."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import experiment_of

from m2fdp.simulation import workers
from m2fdp.simulation.slots import slots_in_use
from m2fdp.simulation.subtrees import blocks_of
from m2fdp.simulation.tree_process import announce, run_part
from m2fdp.topology.tree import Tree

BASE = {
    "training.rounds": 2,
    "training.local_steps": 4,
    "training.local_aggregation": {1: 2},
    "training.batch_size": 8,
    "model.name": "softmax",
    "privacy.epsilon": 20.0,
}
UPLOAD = {"privacy.mechanism": "upload", "privacy.unit": "device", "privacy.epsilon": 50.0}
STAR = {
    "topology.fanouts": [100],
    "topology.trust.ratios": None,
    "training.local_aggregation": None,
}
SYSTEMS = {
    "a tree of two tiers": {},
    "many servers": {"topology.fanouts": [40, 2], "topology.trust.ratios": [0.5]},
    "three tiers": {
        "topology.fanouts": [18, 2, 2],
        "topology.trust.ratios": [0.6, 0.5],
        "training.local_aggregation": {1: 2, 2: 1},
    },
    "ragged": {
        "topology.edges": "ragged.csv",
        "topology.trust.ratios": [0.6, 0.5],
        "training.local_aggregation": {1: 2, 2: 1},
    },
    "models of devices": {**UPLOAD, "topology.fanouts": [40, 2]},
    "models that are clipped": {"privacy.mechanism": "weights", "topology.fanouts": [18, 3]},
    "a star": STAR,
    "a star whose devices join by chance": STAR | {"training.participation": 0.5},
    "some devices a round": {"topology.fanouts": [20, 4], "training.participants": 2},
    "secure sums": {
        **UPLOAD,
        "algorithm": "hfl_dp",
        "topology.fanouts": [18, 4],
        "secure_aggregation.layers": [1, 2],
        "secure_aggregation.noise": "shared",
        "secure_aggregation.dropout": 0.2,
    },
    "slots": {"algorithm": "scaffold", "topology.fanouts": [20, 2]},
    "convolutions": {"model.name": "cnn12", "topology.fanouts": [20, 2], "training.rounds": 1},
    "one record after the other": {
        "training.backend": "reference",
        "training.local_steps": 2,
        "training.local_aggregation": None,
        "topology.fanouts": [17, 1],
    },
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_byte_depends_on_where_it_is_cut(system, monkeypatch, tmp_path):
    """Parts one after another in one process; then the parts of two and of three processes."""
    monkeypatch.chdir(tmp_path)
    _ragged().to_csv("ragged.csv", index=False)
    experiment = experiment_of(BASE | SYSTEMS[system])
    process, plans = experiment.process(), experiment.run_plan.rounds
    simulation, executor = process.simulation, process.executor
    n_blocks = len(executor.costs)
    assert executor.in_blocks and n_blocks > 1
    state, plan = process.round(process.start(), plans[0]), plans[-1]
    announced = announce(simulation, plan, state)
    results = []
    for inner in ([], [1, n_blocks // 2 + 1], range(n_blocks)):
        cuts = sorted({0, *inner, n_blocks})
        slots = slots_in_use(simulation, executor.workers, state)
        sums = []
        for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
            part, means = executor.part(range(start, stop))
            rows = torch.as_tensor(part.groups)
            own = {name: of_all[rows] for name, of_all in slots.items()}
            sums.append(run_part(part, means, announced, own, None).clone())
            for name, of_all in slots.items():
                of_all[rows] = own[name]
        results.append((_bytes(torch.cat(sums)), {name: _bytes(of) for name, of in slots.items()}))
    assert results[0] == results[1] == results[2]
    expected = _bytes(process.round(state, plan).weights)
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 0.0)
    for count in (2, 3):
        other = experiment_of(BASE | SYSTEMS[system] | {"threads": count}).process()
        again = other.round(other.round(other.start(), plans[0]), plan)
        other.executor.workers.end()
        assert _bytes(again.weights) == expected


def _ragged():
    """20 servers of layer 1 with one below each, and one or two devices."""
    edges = [(f"a{i}", "cloud") for i in range(20)] + [(f"b{i}", f"a{i}") for i in range(20)]
    edges += [(f"c{i}-{j}", f"b{i}") for i in range(20) for j in range(1 + i % 2)]
    return pd.DataFrame(edges, columns=["child", "parent"])


def _bytes(values):
    return values.numpy().tobytes()


@given(st.integers(1, 200), st.booleans())
def test_blocks_follow_the_tree(n_children, star):
    """At most 16 servers are a block, or 64 devices; with no more, each is one."""
    cloud = np.zeros(n_children, dtype=np.int64)
    parents = (cloud,) if star else (cloud, np.arange(n_children))
    blocks, size = blocks_of(Tree(parents, ())), 64 if star else 16
    together = size if n_children > size else 1
    assert blocks.tolist() == [child // together for child in range(n_children)]
