"""The cloud's part: round after round, what it has reached, and the folder of a run at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from m2fdp.adversaries.heard import heard_by
from m2fdp.checkpoints.files import Checkpoint, load_latest, save
from m2fdp.core.config import Config, essentials
from m2fdp.core.engine.process import Execution, Process, Simulation, Slots, State
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.training import Checkpointing, Listener, Progress
from m2fdp.core.experiment import promise
from m2fdp.core.experiment.results import Trained
from m2fdp.core.files import replacing
from m2fdp.core.privacy.verdict import Verdict, run_digest
from m2fdp.core.privacy.verdict import keep as keep_verdict
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.links import Place, Question, to_bytes
from m2fdp.deployment.node_plan import NodePlan
from m2fdp.deployment.nodes import Server
from m2fdp.deployment.rehearsed import as_nodes
from m2fdp.experiment import Experiment

# Of a list of names, so many are told.
_NAMED = 12


@dataclass(frozen=True, eq=False)
class TreeOfNodes:
    """The rounds of a run, asked of the cloud's children (a `Process`).

    Attributes:
        simulated: the same run in one process, over no records: model, rules, means to evaluate.
        begin: what to call before a round.
    """

    server: Server
    simulated: Process
    begin: Callable[[int], None]

    @property
    def simulation(self) -> Simulation:
        return self.simulated.simulation

    @property
    def executor(self) -> Execution:
        return self.simulated.executor

    @property
    def draws(self) -> frozenset[str]:
        return Round.draws

    def start(self) -> State:
        """w^(1), with what the server rule begins with."""
        weights = self.simulation.model.initial_vector().to(torch.float32)
        return State(0, weights, Slots(self.simulation.rules.server.start(weights)))

    def round(self, state: State, plan: RoundPlan) -> State:
        """One round; a child that refuses is a `ChildrenError`."""
        number, node = state.round + 1, self.server.node
        self.begin(number)
        place = Place(number, 1, len(plan.layers), "model")
        question = Question(node.plan.digest, place, to_bytes(state.weights[None]))
        model = self.server.broadcast(question)
        rule, slots = self.simulation.rules.server, state.slots
        weights, server = rule.step(state.weights, model[0], slots.server)
        return State(number, weights, replace(slots, server=server))


def run_rounds(process: TreeOfNodes, folder: Path, listener: Listener) -> Trained:
    """All rounds that are left, each kept in a folder before the next begins; a `ChildrenError` or
    `InputError` where a child refuses, or the model diverges."""
    node = process.server.node
    experiment, run = node.recomputed.experiment, node.plan.digest.hex()
    checkpoint, _ = load_latest(folder)
    start = checkpoint.progress if checkpoint is not None and checkpoint.run == run else None

    def keep(progress: Progress) -> None:
        save(folder, Checkpoint(progress, run, {}))

    return experiment.train(listener, start, Checkpointing(1, keep), process)


def write_run(node: NodePlan, trained: Trained, folder: Path) -> None:
    """Model, metrics and ledger where a run of the simulator has them, below a project's folder."""
    experiment = node.recomputed.experiment
    config, cell = simulated(experiment.config), experiment.config.cell
    model, reports = folder / "data/06_models" / cell, folder / "data/08_reporting" / cell
    with replacing(model / "model.pt") as file:
        torch.save(dict(trained.state_dict), file)
    _write_json(model / "configuration.json", essentials(config))
    rests_on = tuple(promise.conditions(experiment))
    private = experiment.calibration.mechanism.private
    # Their records are nobody's to compare.
    keep_verdict(model, Verdict(run_digest(config), "", private, rests_on))
    for path, table in (
        (folder / "data/07_model_output" / cell / "round_metrics.csv", trained.metrics),
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
        rests.append(f"noise is added by those who have signed that they add it: {_listed(adding)}")
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


def simulated(config: Config) -> Config:
    """The configuration of the same run in the simulator."""
    return config.model_copy(update={"deployment": DeploymentConfig()})


def reference(experiment: Experiment) -> tuple[Tensor, pd.DataFrame]:
    """What a rehearsal must end in, to the byte: the simulator's weights (M,) and its ledger.

    Every message has a noise of its own, and servers add up gradients by device.
    """
    process = heard_by(as_nodes(experiment.process()), lambda direction, layer, models: None)
    state = process.start()
    try:
        for plan in experiment.run_plan.rounds[: experiment.calibration.affordable_rounds]:
            state = process.round(state, plan)
    finally:
        process.executor.workers.end()
    return state.weights, experiment.ledger()


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} others" if rest > 0 else "")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
