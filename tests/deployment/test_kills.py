"""Every node, killed at every write of its state: nothing is lost, or answered twice."""

import os
import shutil
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from tests.deployment.trees import REHEARSAL, Nodes, identity, planned
from torch.nn.utils import parameters_to_vector

from m2fdp.core.engine.training import SILENT
from m2fdp.deployment import process
from m2fdp.deployment.links import Answer, to_bytes
from m2fdp.deployment.plan import recompute
from m2fdp.deployment.rehearsed import reference
from m2fdp.deployment.state import Log, State

MASKS = {"secure_aggregation.layers": [1, 2], "secure_aggregation.protocol": "masks"}
# What changes a folder, or waits until it has.
CALLS = [*((os, name) for name in ("fsync", "replace", "rename", "write", "unlink", "mkdir"))]
CALLS += [(State, "keep"), (State, "forget")]


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Power:
    """Kills who makes the write of a number, before it is made; it writes no more, either.

    Attributes:
        at: the number of that write.
        writes: how many there were.
        dead: whether a process is dead that was not yet started again.
    """

    at: int
    writes: int = 0
    dead: bool = False

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        for owner, name in CALLS:
            patched.setattr(owner, name, self.counted(getattr(owner, name)))

    def counted(self, call):
        def calls(*arguments, **named):
            self.dead |= self.writes == self.at
            self.writes += not self.dead
            if self.dead:
                raise Killed
            return call(*arguments, **named)

        return calls

    def lasting(self, start, begin_again):
        """What a process does, which is started again if it is killed."""
        while True:
            try:
                return start()
            except Killed:
                self.dead, self.at = False, -1
                begin_again()


@dataclass
class Mortal(Nodes):
    """Nodes that are started again where they are killed.

    Attributes:
        given: what parents have heard, by child and place.
    """

    power: Power = field(default_factory=lambda: Power(-1))
    given: dict = field(default_factory=lambda: defaultdict(set))

    def reply(self, wire, number, question):
        name = wire.names[number]
        reply = self.power.lasting(
            lambda: super(Mortal, self).reply(wire, number, question), lambda: self.again(name)
        )
        assert isinstance(reply, Answer), reply
        self.given[name, question.place].add((reply.content, reply.statement))
        return reply

    def open(self, name):
        self.power.lasting(lambda: super(Mortal, self).open(name), lambda: None)

    def rounds(self):
        """All of a cloud's; the weights as they are sent."""

        def all_rounds():
            server, guard = self.cloud, self.of["cloud"].guard
            folder = self.states["cloud"].folder / "checkpoints"
            return process.run_rounds(server, guard.begin, folder, SILENT)

        trained = self.power.lasting(all_rounds, lambda: self.again("cloud"))
        return to_bytes(parameters_to_vector(trained.state_dict.values())[None])


def said_to(state):
    log = Log(state.folder / "statements.log")
    return [entry["said"] for entry in log.entries]


def run_killed_at(at, folder, changes):
    """A run with one kill; how many writes there were."""
    experiment, plan = planned(*changes)
    rows, power = experiment.held_out, Power(at)
    held_out = experiment.dataset.images[rows], experiment.dataset.labels[rows]
    nodes = Mortal(experiment, plan, recompute(plan, held_out), folder, power=power)
    shutil.rmtree(folder / "state", ignore_errors=True)
    for names in experiment.network.tree.names:
        for name in names:
            identity(folder, name)
    with pytest.MonkeyPatch.context() as patched:
        power.patch(patched)
        weights = nodes.open_all().rounds()
    nodes.close()
    return power.writes, weights, nodes


@pytest.mark.parametrize(
    "every", [47, pytest.param(1, marks=[pytest.mark.full, pytest.mark.timeout(1200)])]
)
@pytest.mark.parametrize("trust", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("sums", [{}, {"privacy.mechanism": "gradient"}, MASKS], ids=str)
def test_whoever_is_killed_at_any_write_loses_nothing_and_answers_nothing_twice(
    tmp_path, sums, trust, every
):
    """In 1 of 5 runs of open sums a server died after it had sealed what its children had said: it
    took their answers, asked again, for those of another process."""
    changes = REHEARSAL, {"training.rounds": 2, "topology.trust.ratios": [trust]}, sums
    writes, undisturbed, nodes = run_killed_at(-1, tmp_path, changes)
    assert undisturbed == to_bytes(reference(nodes.experiment)[0][None])
    for at in range(0, writes, every):
        weights, nodes = run_killed_at(at, tmp_path, changes)[1:]
        assert weights == undisturbed, at
        assert {len(answers) for answers in nodes.given.values()} == {1}, at
        for name in nodes.experiment.network.tree.names[-1]:
            spent = nodes.states[name].budget.entries
            assert [entry["round"] for entry in spent] == [1, 2], at
        sealed = {line for state in nodes.states.values() for line in said_to(state)}
        given = {statement.decode() for ((_, statement),) in nodes.given.values()}
        assert sealed == given, at
