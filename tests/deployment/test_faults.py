"""Drawn faults of a tree of processes: whatever happens, no device spends more than its
budget, no hostile plan or parent gets an answer, and the node that it happens to says so in a line.

Where and when a fault strikes is drawn; each kind of it comes once at least.
"""

import json
import re
import resource
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from tests.deployment.relay import Relay, free_address, wait_for
from tests.deployment.trees import configured

from m2fdp.deployment import keys
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.demo import Rehearsal, prepare
from m2fdp.deployment.grpc_links import _HELLO, _VERSION, GrpcLink, GrpcLinks
from m2fdp.deployment.links import End, Place, Question, Refusal, to_bytes
from m2fdp.deployment.plan import PublicPlan
from m2fdp.deployment.rehearsed import reference

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
ROUNDS, PATIENCE = 40, 4.0
DEVICES = tuple(f"device-{number}" for number in range(4))
GRADIENT = {"privacy.mechanism": "gradient"}
MASKS = {"secure_aggregation.layers": [1, 2], "secure_aggregation.protocol": "masks"}


def rounds_of(run: Rehearsal, name: str) -> list[int]:
    return [int(found) for found in re.findall(r"^round (\d+) of", run.log(name).read_text(), re.M)]


def wait_for_round(run: Rehearsal, name: str, round_: int) -> None:
    wait_for(lambda: max(rounds_of(run, name), default=0) >= round_, 300, run.log(name).read_text)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A run, and where and when something happens to it.

    Attributes:
        device: whom it happens to.
        round: after which it happens.
    """

    run: Rehearsal
    device: str
    round: int
    random: np.random.Generator

    @property
    def parent(self) -> str:
        tree = self.run.experiment.network.tree
        return tree.names[1][tree.parents[1][DEVICES.index(self.device)]]

    @property
    def settings(self) -> DeploymentConfig:
        return DeploymentConfig(**self.run.plan.content["configuration"]["deployment"])

    @property
    def state(self) -> Path:
        return self.run.folder / "state" / self.device

    @property
    def sibling(self) -> str:
        return next(name for name in DEVICES if name != self.device)

    def reach(self) -> None:
        """All are started, the round is over, and the run waits for another device."""
        self.run.start_all()
        wait_for_round(self.run, self.device, self.round)
        self.run.processes[self.sibling].send_signal(signal.SIGSTOP)
        assert max(rounds_of(self.run, self.device)) < ROUNDS - 1, "the run is in its middle"

    def go_on(self) -> None:
        self.run.processes[self.sibling].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        self.run.processes[name].send_signal(signal.SIGKILL)
        self.run.processes[name].wait()

    def equal(self) -> None:
        """The run goes on, and ends in the simulator's bytes and ledger."""
        self.go_on()
        assert self.run.wait(300) == 0, self.said(self.run.cloud)
        assert {process.returncode for process in self.run.processes.values()} == {0}
        weights, ledger = reference(self.run.experiment)
        assert torch.equal(self.run.weights(), weights)
        assert self.run.ledger().to_csv() == ledger.to_csv()

    def said(self, name: str) -> str:
        return self.run.log(name).read_text()

    def says(self, name: str, words: str) -> None:
        """A node says something, soon."""
        why = f"{words!r} is not in:\n"
        wait_for(lambda: words in self.said(name), 120, lambda: why + self.said(name))

    def refuses(self, name: str, words: str) -> None:
        """A node's process ends with a line that its operator can act on."""
        assert self.run.processes[name].wait(120) == 2, self.said(name)
        self.says(name, words)

    def is_turned_away(self, words: str) -> None:
        """The device's process ends, and its parent waits for it."""
        self.refuses(self.device, words)
        self.says(self.parent, f"{self.device} is not there after")

    def hears_nothing(self, name: str) -> None:
        """A node has answered no question."""
        assert not (self.run.folder / "state" / name / "places.log").exists()


def killed(drawn: Drawn) -> None:
    drawn.reach()
    name = str(drawn.random.choice([drawn.device, drawn.parent, drawn.run.cloud]))
    drawn.kill(name)
    drawn.run.start(name)
    drawn.equal()


def cut_link(drawn: Drawn) -> None:
    near, planned = free_address(), drawn.run.plan.facts.addresses[drawn.parent]
    relay = Relay(near, int(planned.split(":")[1]))
    drawn.run.more = {drawn.parent: ["--listen", near]}
    drawn.reach()
    relay.cut()
    drawn.equal()
    relay.listener.close()
    assert f"{drawn.parent} is back" in drawn.said(drawn.device)


def slow(drawn: Drawn) -> None:
    """Under each `on_missing`."""
    drawn.reach()
    process = drawn.run.processes[drawn.device]
    process.send_signal(signal.SIGSTOP)
    drawn.go_on()
    on_missing = drawn.settings.on_missing
    words = f"{drawn.device} is there, and has not answered after {PATIENCE:g} s"
    if on_missing == "wait":
        drawn.says(drawn.parent, f"{words}; waiting")
    else:
        drawn.says(drawn.parent, words if on_missing == "stop" else f"without {drawn.device}")
    process.send_signal(signal.SIGCONT)
    if on_missing == "wait":
        drawn.equal()
        return
    assert drawn.run.wait(300) == (on_missing == "stop")


def asked_twice(drawn: Drawn) -> None:
    """By a parent that hopes for fresh noise; then by one that changes its question."""
    links, place, start = parent_of(drawn)
    drawn.run.start(drawn.device)
    first, again = (ask(drawn, links, place, start) for _ in range(2))
    assert first.content == again.content and first.statement == again.statement
    other = bytearray(start)
    other[4 * int(drawn.random.integers(len(start) // 4))] ^= 1
    changed = ask(drawn, links, place, bytes(other))
    assert isinstance(changed, Refusal) and "a second release" in changed.reason
    links.end(End("the test is over", False))
    drawn.refuses(drawn.device, "a second answer would be a second release")


def plan_with_less_noise(drawn: Drawn) -> None:
    content = json.loads(drawn.run.plan.signed_bytes)
    name = str(drawn.random.choice(list(content["noise"])))
    kind = next(kind for kind, value in content["noise"][name].items() if value)
    content["noise"][name][kind] *= float(drawn.random.uniform(0, 0.99))
    PublicPlan(content).save(drawn.run.folder / "plan.json", drawn.run.folder / "authority")
    drawn.run.start_all()
    for each in drawn.run.processes:
        drawn.refuses(each, f"plan: noise.{name}.{kind}")
        drawn.hears_nothing(each)


def wrong_authority(drawn: Drawn) -> None:
    keys.make_authority(drawn.run.folder / "other")
    shutil.rmtree(drawn.run.folder / "keys" / drawn.device)
    signed(drawn, drawn.run.folder / "other")
    drawn.run.start_all()
    drawn.is_turned_away("is not signed by this node's authority")


def wrong_name(drawn: Drawn) -> None:
    """One device's keys under another's name."""
    other, own = drawn.sibling, drawn.run.folder / "keys" / drawn.device
    shutil.rmtree(own)
    shutil.copytree(drawn.run.folder / "keys" / other, own)
    for ending in ("key", "pem"):
        (own / f"{other}.{ending}").rename(own / f"{drawn.device}.{ending}")
    drawn.run.start_all()
    drawn.is_turned_away(f"is the certificate of {other}, not of {drawn.device}")


def expired_certificate(drawn: Drawn) -> None:
    class Earlier(keys.datetime):
        @classmethod
        def now(cls, zone):
            return super().now(zone) - keys.timedelta(days=int(drawn.random.integers(2, 300)))

    shutil.rmtree(drawn.run.folder / "keys" / drawn.device)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "datetime", Earlier)
        signed(drawn, drawn.run.folder / "authority", days=1)
    drawn.run.start_all()
    drawn.is_turned_away("have a request signed anew")


def full_disk(drawn: Drawn) -> None:
    drawn.reach()
    process = drawn.run.processes[drawn.device]
    logs = [drawn.state / "budget.log", drawn.state / "places.log"]
    room = max(log.stat().st_size for log in logs) + int(drawn.random.integers(1, 300))
    # What it prints goes to a file, too, which is smaller than these.
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (room, room))
    drawn.go_on()
    assert process.wait(120) == 1
    assert f"Error: No space left on device: {drawn.state}" in drawn.said(drawn.device)
    drawn.run.start(drawn.device)
    drawn.equal()


def damaged_state(drawn: Drawn) -> None:
    drawn.reach()
    drawn.kill(drawn.device)
    file = drawn.state / str(drawn.random.choice(["budget.log", "places.log"]))
    content = bytearray(file.read_bytes())
    content[int(drawn.random.integers(len(content)))] ^= 1
    file.write_bytes(content)
    drawn.go_on()
    drawn.run.start(drawn.device)
    drawn.is_turned_away(f"{file.name}, line ")


def two_processes(drawn: Drawn) -> None:
    """Of one name and one state: the second is refused, and the first goes on."""
    drawn.reach()
    former = drawn.run.processes[drawn.device]
    second = drawn.run.start(drawn.device)
    assert second.wait(120) == 2
    drawn.says(drawn.device, "is in use by another process of this node")
    drawn.run.processes[drawn.device] = former
    drawn.equal()


def copied_state(drawn: Drawn) -> None:
    """A second process with its state of an earlier day: its parent knows it by its number."""
    drawn.reach()
    drawn.kill(drawn.device)
    copy = drawn.run.folder / "copy"
    shutil.copytree(drawn.state, copy)
    drawn.run.start(drawn.device)
    drawn.go_on()
    wait_for_round(drawn.run, drawn.device, drawn.round + 2)
    drawn.kill(drawn.device)
    drawn.run.more = {drawn.device: ["--state", str(copy)]}
    drawn.run.start(drawn.device)
    words = "two processes of its name, or one with an older state"
    drawn.refuses(drawn.device, words)
    drawn.says(drawn.parent, f"{words}; waiting")
    drawn.run.more = {}
    drawn.run.start(drawn.device)
    drawn.equal()


def signed(drawn: Drawn, authority: Path, days: int = 365) -> None:
    """New keys for the device."""
    own = drawn.run.folder / "keys" / drawn.device
    keys.sign(keys.request(drawn.device, own), authority, days)


def parent_of(drawn: Drawn) -> tuple[GrpcLinks, Place, bytes]:
    """This process, with the keys of the device's parent; what it may ask, from which model."""
    name, plan = drawn.parent, drawn.run.plan
    links = GrpcLinks(
        (drawn.device,),
        keys.read_identity(name, drawn.run.folder / "keys" / name),
        drawn.settings.model_copy(update={"patience_s": 60.0}),
        2**20,
        lambda child, certificate, question, answer: None,
        lambda line: None,
        plan.facts.addresses[name],
        plan.digest,
    )
    steps = drawn.run.experiment.run_plan.rounds[drawn.round - 1].layers
    last = next(step for step, top in enumerate(steps, start=1) if top is not None)
    return (
        links,
        Place(drawn.round, 1, last, "model"),
        to_bytes(drawn.run.experiment.model.initial_vector()[None]),
    )


def ask(drawn: Drawn, links: GrpcLinks, place: Place, content: bytes):
    (reply,) = links.ask([Question(drawn.run.plan.digest, place, content)])
    return reply


FAULTS: list[tuple[Callable[[Drawn], None], dict]] = [
    *((slow, {"deployment.on_missing": on_missing}) for on_missing in ("wait", "skip", "stop")),
    *((killed, changes) for changes in ({}, GRADIENT, MASKS)),
    *((fault, {}) for fault in (cut_link, asked_twice, plan_with_less_noise, wrong_authority)),
    *((fault, {}) for fault in (wrong_name, expired_certificate, full_disk, damaged_state)),
    *((fault, {}) for fault in (two_processes, copied_state, full_disk)),
]


@pytest.mark.parametrize(
    "number",
    range(len(FAULTS)),
    ids=["-".join([fault.__name__, *map(str, changes.values())]) for fault, changes in FAULTS],
)
def test_a_fault_costs_no_epsilon_and_says_what_it_was(number, tmp_path):
    random = np.random.default_rng(38 + number)
    fault, changes = FAULTS[number]
    usual = {
        "training.rounds": ROUNDS,
        "deployment.rehearsal": True,
        "deployment.patience_s": PATIENCE if fault is not killed else 60.0,
    }
    run = prepare(configured(usual, changes), tmp_path)
    drawn = Drawn(run, str(random.choice(DEVICES)), int(random.integers(1, ROUNDS // 3)), random)
    try:
        fault(drawn)
    finally:
        run.end()
    for log in tmp_path.glob("*.log"):
        assert "Traceback" not in log.read_text(), log.read_text()
    for file in tmp_path.glob("**/budget.log"):
        entries = [json.loads(line.rpartition("  ")[0]) for line in file.read_text().splitlines()]
        rounds = [entry["round"] for entry in entries]
        assert rounds == sorted(set(rounds)), "no round is spent twice"
        assert all(entry["in_all"] <= entry["budget"] for entry in entries)


def memory(pid: int) -> float:
    """The most that a process has had, MB."""
    return int(re.findall(rb"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_bytes())[0]) / 1e3


def test_hostile_streams_cost_a_parent_no_memory_and_the_others_no_round(tmp_path):
    """A device's endless answer, streams of a node outside the plan, and silent connections: the
    parent grew by 2 GB in 9 s, and no child could join."""
    changes = {"deployment.on_missing": "skip", "deployment.patience_s": PATIENCE}
    usual = {"training.rounds": ROUNDS, "topology.trust.ratios": [0.0], "algorithm": "ldp"}
    run = prepare(configured(usual, changes), tmp_path)
    host, port = run.plan.facts.addresses["server-1-0"].split(":")
    keys.sign(keys.request("stranger", tmp_path / "keys/stranger"), tmp_path / "authority")
    hello, said = ((_HELLO, run.plan.digest + _VERSION),), run.log("server-1-0").read_text
    try:
        for name in ("cloud", "server-1-0", "server-1-1"):
            run.start(name)
        wait_for(lambda: socket.socket().connect_ex((host, int(port))) == 0, 120, said)
        idle = [socket.create_connection((host, int(port))) for _ in range(100)]
        pid, calls = run.processes["server-1-0"].pid, []
        before = memory(pid)
        for name, content in (("stranger", b""), (DEVICES[0], bytes(2**18))):
            own = keys.read_identity(name, tmp_path / "keys" / name)
            address, digest = f"{host}:{port}", run.plan.digest
            link = GrpcLink("server-1-0", address, own, digest, DeploymentConfig(), 2**20)
            parts = (content and repeat(b"C" + content)) or iter(SimpleQueue().get, None)
            calls += [link._join(parts, metadata=hello) for _ in range(1 if content else 20)]
        for name in DEVICES[1:]:
            run.start(name)
        wait_for_round(run, "server-1-0", ROUNDS // 2)
        assert memory(pid) < before + 40, "one part of each child, and threads"
        assert run.wait(300) == 0, said()
        assert re.search(r"^round 1 of .*without device-0 \(more than the \d+ bytes", said(), re.M)
        assert "stranger is no child of this node in its plan; it is not taken in" in said()
        assert len(idle) == 100 and "Traceback" not in said()
    finally:
        run.end()
