"""One process of a tree: a node with its keys, its state, its links, and a line a round. The cloud
asks for round after round, and leaves the folder of a run."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from m2fdp.checkpoints import verdict
from m2fdp.checkpoints.files import Checkpoint, load_latest, save
from m2fdp.core.config import essentials
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.process import State as Reached
from m2fdp.core.engine.training import Checkpointing, Listener, Progress, RoundRecord
from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.results import Trained
from m2fdp.core.files import replacing
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.deployment.grpc_links import GrpcLink, GrpcLinks
from m2fdp.deployment.guard import Below, Guard
from m2fdp.deployment.keys import AUTHORITY, Identity, read_identity
from m2fdp.deployment.links import Answer, End, Place, Question, Refusal, Tell, to_bytes
from m2fdp.deployment.masked import sum_terms, survivors_counted_on
from m2fdp.deployment.node_plan import ChildrenError, NodePlan, node_plan
from m2fdp.deployment.nodes import Device, Server, answering
from m2fdp.deployment.plan import load_plan, own_inputs, read_own, recompute
from m2fdp.deployment.rehearsed import simulated
from m2fdp.deployment.state import State
from m2fdp.deployment.status import Line, Status

REHEARSAL = "REHEARSAL: noise is drawn from the seed; whoever knows the plan can subtract it"
# Of a list of names, so many are told.
_NAMED = 12


@dataclass(frozen=True, eq=False)
class Opened:
    """A node that may take part, and what is known of it, which is called with every line."""

    node: NodePlan
    identity: Identity
    state: State
    status: Status

    @property
    def tell(self) -> Tell:
        return self.status.tell


def open_node(
    device: bool,
    tell: Tell,
    data: str | None = None,
    *,
    plan: Path,
    name: str,
    keys: Path,
    state: Path | None = None,
    rehearsal: bool = False,
) -> Opened:
    """A node of a plan, once all that it can know of the plan holds; an `InputError` otherwise.
    `data` are the cloud's held-out records; its state is in `state/NAME` beside the plan, or in
    another folder; `rehearsal` says that its operator takes part in one."""
    set_exact_arithmetic()
    identity = read_identity(name, keys)
    signed = load_plan(plan, identity.authority)
    held_out = None if data is None else read_own(data, signed.facts, tell, test=True)
    recomputed = recompute(signed, held_out)
    node = node_plan(signed, recomputed, name)
    if (node.layer == node.depth) is not device:
        use = "is a server; use m2fdp serve" if device else "is a device; use m2fdp join"
        raise InputError("--as", name, use)
    if node.layer > 0 and data is not None:
        raise InputError("--data", data, f"is the cloud's, and {name} holds no records")
    if node.layer == 0 and data is None:
        raise InputError("--data", None, "the cloud needs records to evaluate on")
    if signed.release is not None and not rehearsal:
        problem = "is a rehearsal's, whose noise protects nobody; --rehearsal takes part in it"
        raise InputError("plan: configuration.deployment.rehearsal", True, problem)
    tell(f"{name}: plan {signed.digest.hex()[:16]}, {len(node.rounds)} rounds")
    if signed.release is not None:
        tell(REHEARSAL)
    opened = State(state or plan.parent / "state" / name, name)
    certificates = [keys / f"{each}.pem" for each in (name, AUTHORITY)]
    # A server waits for its children as long as they may take, and then for itself.
    deadline = recomputed.settings.patience_s * (node.depth - node.layer + 1)
    return Opened(node, identity, opened, Status(opened.folder, node, certificates, deadline, tell))


def run_device(opened: Opened, data: str, budget: float, trusts: frozenset[str]) -> str:
    """Answer until the run is over; why it is. `data` is a file of its records; `budget` is
    the epsilon that it may spend in all, earlier runs of this state among them; servers that it
    trusts may be sent what no noise is added to.

    What its operator does not allow is refused when the parent asks, so that the parent knows.
    """
    node = opened.node
    records = read_own(data, node.plan.facts, opened.tell, test=False)
    guard = Guard(node, opened.state, opened.identity, budget, trusts=trusts)
    device = Device(node, *own_inputs(node.recomputed, node.index, records), guard)

    def spent(round_: int, start: str = ", ", end: str = "") -> Line:
        epsilon = guard.spent(round_)
        line = f"{start}epsilon {epsilon:.4g} of {budget:g}{end}"
        return Line(line, "budget", epsilon=epsilon, budget=budget)

    whole = guard.spent(len(node.rounds))
    opened.tell(spent(guard.begun, "", f" is spent; the run's end would be at {whole:.4g}"))
    ended, refused = _serve(opened, guard, device, spent)
    if refused:
        raise InputError(node.name, refused[0], f"was refused; {ended.reason}")
    return ended.reason


def run_server(opened: Opened, listen: str | None) -> str:
    """Ask the children whenever the parent asks, until the run is over; why it is."""
    missing = list[str]()
    with _parent(opened, listen) as (links, guard):
        server = Server(opened.node, links, guard, missing.append)
        ended, _ = _serve(opened, guard, server, lambda round_: Line(_without(missing)))
        _hand_down(opened, links, ended)
    return ended.reason


def _hand_down(opened: Opened, links: GrpcLinks, ended: End) -> None:
    """Tell the children of the end, but those of whom this node knows that they were told."""
    run = opened.node.plan.digest.hex()
    _, told = opened.state.ended(run) or ("", frozenset())
    told |= links.end(ended, told)
    if ended.over:
        opened.state.end(run, ended.reason, told)


@contextmanager
def _parent(opened: Opened, listen: str | None) -> Iterator[tuple[GrpcLinks, Guard]]:
    """Links to a server's children, and the guard that has what they say. By an error that it can't
    mend the run is over for them, too; by any other they wait until it is back."""
    node, settings = opened.node, opened.node.recomputed.settings
    below = Below(node, opened.state)
    # A server must have answered before its parent's patience ends.
    patience = {"patience_s": settings.patience_s * (node.depth - node.layer)}
    links = GrpcLinks(
        node.children,
        listen or opened.node.plan.facts.addresses[node.name],
        opened.identity,
        opened.node.plan.digest,
        settings.model_copy(update=patience),
        node.most_bytes(node.layer + 1, node.members),
        below.check,
        opened.tell,
    )
    try:
        yield links, Guard(node, opened.state, opened.identity, below=below)
    except BaseException as error:
        links.end(End(str(error), False) if isinstance(error, InputError) else None)
        raise


def _serve(
    opened: Opened, guard: Guard, worker: Device | Server, more: Callable[[int], Line]
) -> tuple[End, list[str]]:
    """Answer the parent until the end, and keep it; the end, and the refusals."""
    node, began, refused = opened.node, [0.0], list[str]()
    if (kept := opened.state.ended(node.plan.digest.hex())) is not None:
        return End(kept[0], True), refused
    compute = answering(node, opened.identity, worker, guard)

    def answer(question: Question) -> Answer | Refusal:
        round_, now = question.place.round, time.perf_counter()
        opened.tell(Line("", "works", round=round_))
        reply = guard.answer(question, compute)
        opened.tell(Line("", "waits"))
        if isinstance(reply, Refusal):
            refused.append(reply.reason)
            line = f"round {round_}: refused: {reply.reason}"
            opened.tell(Line(line, "refused", "warning", round=round_, reason=reply.reason))
            return reply
        places = node.places(round_)
        if question.place == places[0] or not began[0]:
            began[0] = now
        if question.place == places[-1]:
            seconds, words = time.perf_counter() - began[0], more(round_)
            line = f"round {round_} of {len(node.rounds)}: {seconds:.2f} s{words}"
            opened.tell(Line(line, "round", round=round_, seconds=seconds, **words.facts))
        return reply

    def keep(end: End) -> None:
        if end.over:
            opened.state.end(node.plan.digest.hex(), end.reason)

    plan, parent = node.plan, str(node.parent)
    address, settings = plan.facts.addresses[parent], node.recomputed.settings
    most = node.most_bytes(node.layer, node.siblings)
    link = GrpcLink(parent, address, opened.identity, plan.digest, settings, most)
    try:
        return link.serve(answer, opened.tell, keep), refused
    finally:
        link.close()


def run_cloud(opened: Opened, listen: str | None, out: Path) -> tuple[str, bool]:
    """All rounds, with the run's files in a project's folder; a line on the end, and whether it is
    that of the plan."""
    node, tell, run = opened.node, opened.tell, opened.node.plan.digest.hex()
    missing, seconds_of = list[str](), dict[int, float]()

    def begin(round_: int) -> None:
        tell(Line("", "works", round=round_))
        guard.begin(round_)

    def on_round(round_: int, logged: object, seconds: float) -> None:
        seconds_of[round_] = seconds

    def on_evaluation(record: RoundRecord) -> None:
        private = "" if math.isnan(record.epsilon) else f", epsilon {record.epsilon:.4g}"
        took = seconds_of[record.round]
        line = (
            f"round {record.round} of {len(node.rounds)}: {took:.2f} s, accuracy "
            f"{record.accuracy:.4f}, loss {record.loss:.4g}{private}{_without(missing)}"
        )
        tell(Line(line, "round", round=record.round, seconds=took))

    with _parent(opened, listen) as (links, guard):
        server = Server(node, links, guard, missing.append)
        folder, listener = opened.state.folder / "checkpoints", Listener(on_round, on_evaluation)
        try:
            model = out / "data/06_models" / node.recomputed.experiment.config.cell / "model.pt"
            if opened.state.ended(run) is None or not model.exists():
                trained = run_rounds(server, begin, folder, listener)
                write_run(node, trained, out, seconds_of)
                opened.state.end(run, f"the run is over: {trained.rounds} rounds")
            (reason, _), over = opened.state.ended(run) or ("", ()), True
        except ChildrenError as error:
            reason, over = f"the run is stopped: {error}", False
        ended = End(reason, over)
        _hand_down(opened, links, ended)
    later = sorted(list(seconds_of.values())[1:])
    median = f", {later[len(later) // 2]:.3f} s a round after the first" if later else ""
    tell(f"{links.traffic.sent + links.traffic.received} bytes sent and received here{median}")
    return ended.reason, ended.over


def _without(missing: list[str]) -> str:
    """Who was done without since the last line."""
    line = f", without {', '.join(dict.fromkeys(missing))}" if missing else ""
    missing.clear()
    return line


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeOfNodes(TreeProcess):
    """The rounds of a run, asked of the cloud's children. The same run in one process, over no
    records, has the model, the rules, and what evaluates."""

    server: Server
    begin: Callable[[int], None]  # called before a round

    def round(self, state: Reached, plan: RoundPlan) -> Reached:
        """One round. Nobody can listen; a child that refuses is a `ChildrenError`."""
        number = state.round + 1
        self.begin(number)
        place = Place(number, 1, len(plan.layers), "model")
        asked = Question(self.server.node.plan.digest, place, to_bytes(state.weights[None]))
        model = self.server.broadcast(asked)
        rule, slots = self.simulation.rules.server, state.slots
        weights, server = rule.step(state.weights, model[0], slots.server)
        self.server.keeper.seal()  # before the round is kept, and asked no more
        return Reached(number, weights, replace(slots, server=server))


def run_rounds(
    server: Server, begin: Callable[[int], None], folder: Path, listener: Listener
) -> Trained:
    """All rounds that are left, each kept in a folder before the next begins; a `ChildrenError` or
    `InputError` where a child refuses, or the model diverges."""
    experiment, run = server.node.recomputed.experiment, server.node.plan.digest.hex()
    checkpoint, _ = load_latest(folder)
    start = checkpoint.progress if checkpoint is not None and checkpoint.run == run else None
    process = TreeOfNodes(**vars(experiment.process()), server=server, begin=begin)

    def keep(progress: Progress) -> None:
        save(folder, Checkpoint(progress, run, {}))

    return experiment.train(listener, start, Checkpointing(1, keep), process)


def write_run(
    node: NodePlan, trained: Trained, folder: Path, seconds: Mapping[int, float] | None = None
) -> None:
    """Model, metrics and ledger where a run of the simulator has them, below a project's folder.
    Delay and energy are the simulator's; `seconds` are what rounds took, where that is known."""
    experiment = node.recomputed.experiment
    took = trained.metrics["round"].map(dict(seconds or {})).astype(float)
    metrics = trained.metrics.assign(seconds=took)
    config, cell = simulated(experiment.config), experiment.config.cell
    model, reports = folder / "data/06_models" / cell, folder / "data/08_reporting" / cell
    with replacing(model / "model.pt") as file:
        torch.save(dict(trained.state_dict), file)
    _write_json(model / "configuration.json", essentials(config))
    rests_on = tuple(experiment.conditions())
    private = experiment.calibration.mechanism.private
    # Their records are nobody's to compare.
    digest = verdict.run_digest(config)
    verdict.keep(model, verdict.Verdict(digest, "", private, rests_on))
    for path, table in (
        (folder / "data/07_model_output" / cell / "round_metrics.csv", metrics),
        (reports / "privacy_ledger.csv", experiment.ledger()),
        (reports / "epsilon_over_rounds.csv", experiment.epsilon_over_rounds()),
    ):
        with replacing(path) as file:
            table.to_csv(file, index=False)
    _write_json(reports / "privacy_summary.json", promised(node))


def promised(node: NodePlan) -> dict[str, Any]:
    """What the run promises, and whom it rests on."""
    experiment, plan = node.recomputed.experiment, node.plan
    summary = experiment.summary()
    rests = []
    if adding := list(plan.content["noise"]):
        named, others = ", ".join(adding[:_NAMED]), len(adding) - _NAMED
        rest = f" and {others} others" if others > 0 else ""
        rests.append(f"noise is added by those who have signed that they add it: {named}{rest}")
    if node.recomputed.network.sums.layers:
        colluding = experiment.config.threat.colluding
        rests.append(
            "senders believe no server about keys or survivors: one that lies reads no sender by "
            f"itself while at most {colluding} of them collude with it"
        )
    if plan.release is not None:
        rests.append("a rehearsal: noise is drawn from the seed, and whoever knows it subtracts it")
    else:
        rests.append("what floating-point noise tells by its least digits is not met")
    nodes = [name for names in node.recomputed.network.tree.names for name in names]
    deployed = {"nodes": len(nodes), "plan": plan.digest.hex(), "rehearsal": bool(plan.release)}
    assumptions = [*summary.get("assumptions", ()), *rests]
    return summary | {"assumptions": assumptions, "deployed": deployed}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def told_of(node: NodePlan) -> Iterator[str]:
    """A line a thing: who asks, how often, behind how much noise, who else reads it, epsilon."""
    recomputed, plan = node.recomputed, node.plan
    yield f"{node.name}: plan {plan.digest.hex()[:16]}, {len(node.rounds)} rounds"
    if plan.release is not None:
        yield "a rehearsal: noise is drawn from the seed and protects nobody"
    if (schema := plan.facts.schema) is not None:
        columns = ", ".join(schema["columns"])
        yield f"rows by the plan's schema: {schema['label']['column']} of {columns}"
    if node.parent is not None:
        places = [place for place in node.places(1) if place.gives]
        what = "weighed gradients" if node.gives == "gradient" else "models"
        how = ", as masked words" if node.masked else ""
        yield f"sends {what} to {node.parent}{how}, {len(places)} in the first round"
        if node.masked:
            group = sum_terms(node, node.layer, node.siblings, places[0]).group
            least = survivors_counted_on(node, group)
            yield f"{node.parent} reads their sum, of at least {least} of {group.n_members} senders"
    if node.children:
        yield f"asks {', '.join(node.children)}; missing ones: {recomputed.settings.on_missing}"
    noise = node.deviations
    for when, deviation in (
        ("at every local step", noise.step),
        ("to what it sends for a global aggregation", noise.message),
        ("to what it sends for a local aggregation", noise.local_message),
        ("to what it hands down", noise.broadcast),
    ):
        if deviation:
            unit = node.mechanism.noise.unit
            in_words = "step sizes" if unit == "step" else "the model's unit"
            yield f"adds noise of deviation {deviation:.6g} {when}, in {in_words}"
    if node.layer < node.depth:
        return
    readers = recomputed.readers_in_clear(node.index)
    yield f"un-noised vectors reach: {', '.join(readers) or 'nobody'} (--trusts)"
    ledger, rounds = recomputed.ledger, len(node.rounds)
    for line in ledger.lines:
        if node.index in line.position.members:
            counted = "counts" if line.kind in recomputed.counted else "does not count"
            spent = ledger.epsilon(line, rounds)
            yield f"  {line.observer}: {line.sees}, epsilon {spent:.4g}; {counted}"
    yield f"epsilon {recomputed.epsilon(node.index, rounds):.4g} in all, delta {ledger.delta:g}"
