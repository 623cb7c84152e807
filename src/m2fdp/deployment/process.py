"""One process of a tree: a node with its keys, its state, its links, and a line a round. The cloud
asks for round after round, and leaves the folder of a run."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from m2fdp.checkpoints import verdict
from m2fdp.checkpoints.files import Checkpoint, load_latest, save
from m2fdp.core.config import essentials
from m2fdp.core.engine.process import State as Reached
from m2fdp.core.engine.training import Checkpointing, Listener, Progress, RoundRecord
from m2fdp.core.engine.tree_process import TreeProcess
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.results import Trained
from m2fdp.core.files import replacing, shown
from m2fdp.core.formatting import some_of
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.deployment.amendments import due
from m2fdp.deployment.grpc_links import GrpcLink, GrpcLinks, OtherPlanError
from m2fdp.deployment.guard import Guard
from m2fdp.deployment.links import Answer, End, Place, Question, Refusal, to_bytes
from m2fdp.deployment.masked import sum_terms, survivors_counted_on
from m2fdp.deployment.node_plan import ChildrenError, NodePlan
from m2fdp.deployment.nodes import Device, Server, answering
from m2fdp.deployment.opened import AMENDED, AmendedError, Opened
from m2fdp.deployment.plan import own_inputs, read_own
from m2fdp.deployment.rehearsed import simulated
from m2fdp.deployment.statements import Below
from m2fdp.deployment.status import Line


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
    below = Below(node, opened.state, opened.identity)
    # A server must have answered before its parent's patience ends.
    patience = {"patience_s": settings.patience_s * (node.depth - node.layer)}
    links = GrpcLinks(
        node.children,
        opened.identity,
        settings.model_copy(update=patience),
        node.most_bytes(node.layer + 1, node.members),
        below.check,
        opened.tell,
        listen or node.plan.facts.addresses[node.name],
        node.plan.digest,
    )
    try:
        yield links, Guard(node, opened.state, opened.identity, below=below)
    except BaseException as error:
        ends = isinstance(error, InputError) and not isinstance(error, OtherPlanError)
        links.end(End(str(error), False) if ends else None)
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
    most, waits = node.most_bytes(node.layer, node.siblings), plan.continues is not None
    link = GrpcLink(parent, address, opened.identity, plan.digest, settings, most, waits)
    try:
        return link.serve(answer, opened.tell, keep), refused
    finally:
        link.close()


def run_cloud(opened: Opened, listen: str | None, out: Path) -> tuple[str, bool]:
    """All rounds, with the run's files in a project's folder; a line on the end, and whether it is
    that of the plan."""
    node, tell, run = opened.node, opened.tell, opened.node.plan.digest.hex()
    missing, seconds_of, told = list[str](), dict[int, float](), set[str]()

    def begin(round_: int) -> None:
        opened.identity.renew(tell)
        try:
            following = due(node.plan, round_, opened.beside, opened.identity.authority)
        except InputError as error:
            if str(error) not in told:
                tell(f"{error}; the run goes on")
            told.add(str(error))
        else:
            if following is not None:
                raise AmendedError(f"{round_ - 1} by plan {following.digest.hex()[:16]}")
        tell(Line("", "works", round=round_))
        guard.begin(round_)

    def on_round(round_: int, logged: object, seconds: float) -> None:
        seconds_of[round_] = seconds

    def on_evaluation(record: RoundRecord) -> None:
        private = "" if math.isnan(record.epsilon) else f", epsilon {record.epsilon:.4g}"
        took = seconds_of[record.round]
        worth = f"accuracy {record.accuracy:.4f}, loss {record.loss:.4g}{private}"
        line = f"round {record.round} of {len(node.rounds)}: {took:.2f} s, {worth}"
        line += _without(missing)
        tell(Line(line, "round", round=record.round, seconds=took))

    with _parent(opened, listen) as (links, guard):
        server = Server(node, links, guard, missing.append)
        folder, listener = opened.state.folder / "checkpoints", Listener(on_round, on_evaluation)
        try:
            model = out / "data/06_models" / node.recomputed.experiment.config.cell / "model.pt"
            amended = (opened.ended or "").startswith(AMENDED)
            if opened.ended is None or not (amended or model.exists()):
                trained = run_rounds(server, begin, folder, listener)
                write_run(node, trained, out, seconds_of)
                opened.state.end(run, f"the run is over: {trained.rounds} rounds")
            reason, over = str(opened.ended), True
        except AmendedError as error:
            kept = load_latest(folder)[0]
            weights = b"" if kept is None else to_bytes(kept.progress.state.weights[None])
            reason, over = f"{AMENDED}{error}, from model {sha256(weights).hexdigest()[:16]}", True
            opened.state.end(run, reason)
        except ChildrenError as error:
            reason, over = f"the run is stopped: {error}", False
        ended = End(reason, over)
        _hand_down(opened, links, ended)
    later = sorted(list(seconds_of.values())[1:])
    median = f", {later[len(later) // 2]:.3f} s a round after the first" if later else ""
    tell(f"{sum(links.traffic.values())} bytes sent and received here{median}")
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
    start, plan = None, server.node.plan
    reached = 0 if checkpoint is None else checkpoint.progress.state.round
    if checkpoint is not None and checkpoint.run == run:
        start = checkpoint.progress
    while start is None and plan.continues is not None:
        plan, until = plan.continues
        if checkpoint is not None and (checkpoint.run, reached) == (plan.digest.hex(), until):
            start = checkpoint.progress
    if start is None and plan is not server.node.plan:
        problem = "has not the model of the round that the plan goes on from"
        raise InputError("state", shown(folder), problem)
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
        signed = f"those who have signed that they add it: {some_of(adding)}"
        rests.append(f"noise is added by {signed}")
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
