"""However a simulation is cut into blocks of subtrees, and whoever computes them: equal bytes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import experiment_of
from tests.core.engine.cut_systems import SYSTEMS, build_system

from m2fdp.core.engine.tree_process import blocks_of, build_process
from m2fdp.core.errors import InputError
from m2fdp.core.topology.tree import Tree
from m2fdp.processes import workers
from m2fdp.processes.elsewhere import Site


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_byte_depends_on_where_it_is_cut(system, monkeypatch, tmp_path):
    """Parts one after another in one process, and the whole; then in tiles, and parts of two and of
    three processes."""
    monkeypatch.chdir(tmp_path)
    experiment = build_system(system)
    process, plans = experiment.process(), experiment.run_plan.rounds
    simulation, executor = process.simulation, process.executor
    n_blocks = len(executor.costs)
    assert process.in_blocks and n_blocks > 1
    state, plan = process.round(process.start(), plans[0]), plans[-1]
    kind = process.kind
    drawn, results = kind.draw(simulation, plan, state), []
    for inner in ([], [1, n_blocks // 2 + 1], range(n_blocks)):
        cuts = sorted({0, *inner, n_blocks})
        slots = kind.slots_in_use(simulation, state, executor.workers)
        sums = []
        for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
            part, means = executor.part(range(start, stop))
            rows = torch.as_tensor(part.groups)
            own = {name: of_all[rows] for name, of_all in slots.items()}
            sums.append(kind(part.simulation, means, part.of(drawn), own).below().clone())
            for name, of_all in slots.items():
                of_all[rows] = own[name]
        results.append((_bytes(torch.cat(sums)), {name: _bytes(of) for name, of in slots.items()}))
    slots = kind.slots_in_use(simulation, state, executor.workers)
    whole = kind(simulation, process.means, drawn, slots).below()
    results.append((_bytes(whole), {name: _bytes(of) for name, of in slots.items()}))
    assert results[0] == results[1] == results[2] == results[3]
    expected = _bytes(process.round(state, plan).weights)
    for size in (1, 5):
        tiled = build_process(simulation, replace(process.settings, chunk_size=size))
        again = tiled.round(tiled.round(tiled.start(), plans[0]), plan)
        assert _bytes(again.weights) == expected
    monkeypatch.setattr(workers, "_WORTH_SHARING_S", 0.0)
    for count in (2, 3):
        other = build_system(system, threads=count).process()
        again = other.round(other.round(other.start(), plans[0]), plan)
        other.executor.workers.end()
        assert _bytes(again.weights) == expected
    for count in (1, 3):
        there = build_process(simulation, process.settings, SitesHere(count))
        again = there.round(there.round(there.start(), plans[0]), plan)
        assert _bytes(again.weights) == expected


class SitesHere:
    """Sites that share nothing but bytes; every second round another one computes a piece."""

    def __init__(self, count):
        self.count, self.sites, self.rounds = count, [Site() for _ in range(count)], 0

    def compute(self, drawn, kept, content_of):
        self.rounds += 1
        return {
            piece: self.sites[(number + self.rounds // 2) % self.count].compute(
                piece, drawn, content, content_of(piece)
            )
            for number, (piece, content) in enumerate(kept.items())
        }


def test_steps_of_the_cloud_itself_are_not_computed_elsewhere():
    simulation = experiment_of({"algorithm": "cdp"}).simulation()
    with pytest.raises(InputError, match="execution.engine = 'ray': computes subtrees apart"):
        build_process(simulation, sites=SitesHere(1))


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
