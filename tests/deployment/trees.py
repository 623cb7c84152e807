"""Trees of nodes in this process: a plan's, over the digits, with states in a folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tests.builders import digits

from m2fdp import load_config
from m2fdp.deployment import keys
from m2fdp.deployment.facts import Facts
from m2fdp.deployment.guard import Guard
from m2fdp.deployment.links import Answer, Missing, Place, Question, Refusal, to_bytes
from m2fdp.deployment.node_plan import Keeper, NodePlan, RefusedError, node_plan
from m2fdp.deployment.nodes import Device, Server, answering
from m2fdp.deployment.plan import PublicPlan, Recomputed, make_plan, recompute
from m2fdp.deployment.rehearsed import simulated
from m2fdp.deployment.state import State
from m2fdp.deployment.statements import Below
from m2fdp.experiment import Experiment

BASE = {
    "topology.fanouts": [2, 2],
    "training.rounds": 3,
    "privacy.mechanism": "upload",
    "dataset.confirmed": True,  # digits were scaled by 16
    "threads": 1,
}
REHEARSAL = {"deployment.rehearsal": True}
# Of nodes that sign but keep nothing.
_KEYS = TemporaryDirectory()


def configured(*changes: Mapping[str, Any]):
    return load_config(BASE, *changes)


def experiment_of(*changes: Mapping[str, Any]) -> Experiment:
    """The simulator's."""
    return Experiment.from_config(simulated(configured(*changes)), digits())


def facts_of(experiment: Experiment) -> Facts:
    tree = experiment.network.tree
    servers = [name for names in tree.names[:-1] for name in names]
    records = dict(zip(tree.names[-1], map(int, experiment.samples.sizes), strict=True))
    addresses = {name: f"127.0.0.1:{port}" for port, name in enumerate(servers, start=1)}
    return Facts(addresses, records, experiment.dataset.shape, experiment.dataset.n_classes)


_PLANNED: dict[str, tuple[Experiment, PublicPlan]] = {}


def planned(*changes: Mapping[str, Any]) -> tuple[Experiment, PublicPlan]:
    """The simulator's experiment and the nodes' plan, made once for each of the changes."""
    if str(changes) not in _PLANNED:
        experiment = experiment_of(*changes)
        release = experiment.simulation().randomness.noise.release
        plan = make_plan(configured(*changes), facts_of(experiment), release)
        _PLANNED[str(changes)] = experiment, plan
    return _PLANNED[str(changes)]


@cache
def authority(folder: Path) -> Path:
    """Made once a folder, and keys of nodes beside it."""
    keys.make_authority(folder / "authority")
    return folder / "authority"


def identity(folder: Path, name: str) -> keys.Identity:
    own = folder / "keys" / name
    if not own.exists():
        keys.sign(keys.request(name, own), authority(folder))
    return keys.read_identity(name, own)


class InMemory(Keeper):
    """What a node keeps of a round, on no disk."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], bytes] = {}

    def kept(self, round_, what):
        return self._held.get((round_, what))

    def keep(self, round_, what, content, waits=True):
        self._held = {at: held for at, held in self._held.items() if at[0] == round_}
        self._held[round_, what] = content


@dataclass
class Child:
    """A node behind its guard, if it has one, as its parent's links reach it.

    Attributes:
        worker: the device or server.
    """

    guard: Guard | None
    compute: Callable[[Question], bytes]
    worker: Device | Server

    def answer(self, question):
        if self.guard is not None:
            return self.guard.answer(question, self.compute)
        try:
            return Answer(self.compute(question), b"")
        except RefusedError as error:
            return Refusal(self.worker.node.name, str(error))


@dataclass
class Wire:
    """From a server to its children as they are now, for who listens and who meddles.

    Attributes:
        meddle: what a child, by number, is asked instead; None = it is not there.
        below: what checks children's statements, where they sign them.
        heard: who was asked what, and replied what.
    """

    nodes: "Nodes"
    names: tuple[str, ...]
    below: Below | None = None
    meddle: Callable[[int, Question], Question | None] = lambda number, question: question
    heard: list[tuple[int, Question, Answer | Refusal]] = field(default_factory=list)

    @property
    def children(self):
        return [self.nodes.of[name] for name in self.names]

    def ask(self, questions):
        for number, question in enumerate(questions):
            asked = question and self.meddle(number, question)
            if asked is not None:
                reply = self.nodes.reply(self, number, asked)
                self.heard.append((number, asked, reply))
                yield reply
            elif question is not None:
                yield Missing(self.names[number])


@dataclass
class Nodes:
    """All nodes of a plan.

    Attributes:
        guarded: whether they have states and keys.
        of: what each child answers by.
        servers: the cloud among them.
        states: to be closed before they are opened again.
        missed: who was done without.
    """

    experiment: Experiment
    plan: PublicPlan
    recomputed: Recomputed
    folder: Path
    budget: float = float("inf")
    guarded: bool = True
    of: dict[str, Child] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def node(self, name: str) -> NodePlan:
        return node_plan(self.plan, self.recomputed, name)

    def open(self, name: str) -> None:
        """A node as its process begins; its children are there."""
        node, guard, below = self.node(name), None, None
        if self.guarded:
            self.states[name] = state = State(self.folder / "state" / name, name)
            budget = self.budget if node.layer == node.depth else None
            below = Below(node, state)
            guard = Guard(node, state, identity(self.folder, name), budget, below)
        keeper = guard or InMemory()
        if node.layer == node.depth:
            worker = Device(node, *self.records(node), keeper)
        else:
            links = Wire(self, node.children, below)
            self.servers[name] = worker = Server(node, links, keeper, self.missed.append)
        own = identity(self.folder, name) if self.guarded or node.masked else None
        compute = answering(node, own, worker, keeper)
        self.of[name] = Child(guard, compute, worker)

    def records(self, node: NodePlan) -> tuple[torch.Tensor, torch.Tensor]:
        """A device's own, as the model takes them."""
        samples = self.experiment.samples
        start, stop = samples.offsets[node.index : node.index + 2]
        return self.experiment.records(samples.samples[start:stop])

    def reply(self, wire: Wire, number: int, question: Question) -> Answer | Refusal:
        """What a child replies, once its parent has looked at its statement."""
        name, reply = wire.names[number], wire.children[number].answer(question)
        if wire.below is None or isinstance(reply, Refusal):
            return reply
        own = identity(self.folder, name).certificate
        wrong = wire.below.check(name, own, question, reply)
        return reply if wrong is None else Refusal(name, wrong)

    def again(self, name: str) -> None:
        """The process was killed, and is started again."""
        self.states[name].close()
        before = self.servers.get(name)
        self.open(name)
        if before is not None:
            self.servers[name].links.meddle = before.links.meddle

    def open_all(self) -> "Nodes":
        for names in reversed(self.experiment.network.tree.names):
            for name in names:
                self.open(name)
        return self

    def close(self) -> None:
        """All processes are over."""
        for state in self.states.values():
            state.close()

    @property
    def cloud(self) -> Server:
        return self.servers[self.experiment.network.tree.names[0][0]]

    def question(self, weights: torch.Tensor, number: int = 1, last: int = 4) -> Question:
        """A round's first for models, from weights (M,)."""
        place = Place(number, 1, last, "model")
        return Question(self.plan.digest, place, to_bytes(weights[None]))

    def round(self, number: int, weights: torch.Tensor) -> torch.Tensor:
        """One of the cloud's, (M,)."""
        steps = len(self.cloud.node.rounds[number - 1].layers)
        return self.cloud.broadcast(self.question(weights, number, steps))[0]

    def run(self) -> torch.Tensor:
        """All rounds; the weights (M,) that they end in."""
        rule = self.experiment.plan.rules.server
        weights = self.experiment.model.initial_vector()
        slots = rule.start(weights)
        for number in range(1, len(self.cloud.node.rounds) + 1):
            weights, slots = rule.step(weights, self.round(number, weights), slots)
        return weights


def lines_of(state: State) -> list[str]:
    """What its node has signed of its answers."""
    return [entry["said"] for entry in state.places.entries if "said" in entry]


def tree_of(*changes: Mapping[str, Any]) -> Nodes:
    """Nodes of a configuration that have neither keys nor states."""
    experiment, plan = planned(*changes)
    return Nodes(experiment, plan, recompute(plan), Path(_KEYS.name), guarded=False).open_all()


def guarded_tree(folder: Path, *changes: Mapping[str, Any], budget: float = float("inf")) -> Nodes:
    """Nodes with keys and states in a folder."""
    experiment, plan = planned(*changes)
    return Nodes(experiment, plan, recompute(plan), folder, budget).open_all()
