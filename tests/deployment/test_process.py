"""Nodes as their commands run them, over TLS, in threads of this process: lines, ends, refusals.
And the cloud: rounds that go on after it was killed, and a folder that evaluation takes."""

import json
import threading
from pathlib import Path

import mlflow
import pandas as pd
import pytest
import torch
from tests.deployment.trees import REHEARSAL, Nodes, configured, planned, tree_of
from torch.nn.utils import parameters_to_vector

from m2fdp.core.engine.training import SILENT
from m2fdp.core.errors import InputError
from m2fdp.deployment import process
from m2fdp.deployment.demo import Rehearsal, prepare
from m2fdp.deployment.grpc_links import GrpcLinks
from m2fdp.deployment.links import to_bytes
from m2fdp.deployment.node_plan import ChildrenError
from m2fdp.deployment.nodes import Server
from m2fdp.deployment.opened import followed, open_node
from m2fdp.deployment.plan import recompute
from m2fdp.deployment.rehearsed import reference

SMALL = {"training.rounds": 2, "deployment.rehearsal": True, "deployment.patience_s": 30}
PARAMS = (
    "--params=topology.fanouts=2|2,training.rounds=3,privacy.mechanism=upload,"
    "dataset.confirmed=true"
)


OVER = "the run is over: 2 rounds"


class Hasty(GrpcLinks):
    """Whose children have heard the end soon, or never."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.farewell_s = 3.0


class Running:
    """A thread a node, and what it has told and ended in."""

    def __init__(self, rehearsal: Rehearsal, budgets=(), trusted=True, only=None, plans=()):
        self.rehearsal, self.budgets, self.trusted = rehearsal, dict(budgets), trusted
        self.told, self.ended, self.threads, self.plans = {}, {}, [], dict(plans)
        self.statuses = {}
        tree = rehearsal.experiment.network.tree
        for layer, names in enumerate((*tree.names[:-1], (*tree.names[-1], *self.plans))):
            for name in names if only is None else set(names) & set(only):
                self.told[name] = []
                thread = threading.Thread(target=self.run, args=(name, layer, tree.depth))
                self.threads.append(thread)
                thread.start()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive()

    def again(self):
        """All of them are started again."""
        return Running(self.rehearsal, self.budgets, self.trusted)

    def run(self, name: str, layer: int, depth: int) -> None:
        folder, tell = self.rehearsal.folder, self.told[name].append
        plan = folder / self.plans.get(name, "plan.json")
        own = {"plan": plan, "name": name, "keys": folder / "keys" / name}
        own["rehearsal"] = True
        data = str(folder / f"{name}.npz")
        try:
            opened = open_node(layer == depth, tell, None if layer else data, **own)
            self.statuses[name] = opened.status.content
            readers = opened.node.recomputed.readers_in_clear(opened.node.index)
            given = data, self.budgets.get(name, 5.0), frozenset(readers if self.trusted else ())
            self.ended[name] = followed(
                opened,
                lambda node: (
                    process.run_cloud(node, None, folder)
                    if layer == 0
                    else process.run_server(node, None)
                    if layer < depth
                    else process.run_device(node, *given)
                ),
            )
        except InputError as error:
            self.ended[name] = str(error)
        finally:
            opened.state.close()


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    return prepare(configured(SMALL), tmp_path)


def test_a_run_of_nodes_ends_in_the_simulator_s_bytes(rehearsal):
    running = Running(rehearsal)
    assert running.ended.pop("cloud") == (OVER, True)
    assert set(running.ended.values()) == {OVER}
    weights, ledger = reference(rehearsal.experiment)
    assert torch.equal(rehearsal.weights(), weights)
    assert rehearsal.ledger().to_csv() == ledger.to_csv()
    for name, lines in running.told.items():
        rounds = [line for line in lines if line.startswith("round ")]
        assert len(rounds) == 2 and rounds[1].startswith("round 2 of 2: "), (name, lines)
        assert any("REHEARSAL" in line for line in lines)
    assert "epsilon 4 of 5" in running.told["device-0"][-1]
    assert "accuracy" in next(line for line in running.told["cloud"] if "round 2" in line)
    assert running.told["device-0"][2] == "epsilon 0 of 5 is spent; the run's end would be at 4"
    for parent, child in (("cloud", "server-1-1"), ("server-1-0", "device-0")):
        assert f"{child} is there" in running.told[parent]
        assert running.statuses[parent]["children"][child]["since"] is not None
    for status in running.statuses.values():
        assert (status["round"], status["rounds_done"], status["last_refusal"]) == (2, 2, None)
        assert status["doing"] == "waits" and 0 < status["seconds"] < 60
    assert running.statuses["device-0"]["parent"]["name"] == "server-1-0"
    assert running.statuses["device-0"]["epsilon"] == pytest.approx(4.0, rel=1e-3)
    (rounds,) = (rehearsal.folder / "data/07_model_output").glob("*/round_metrics.csv")
    assert (pd.read_csv(rounds)["seconds"] < 60).all(), "and none is missing"
    again = running.again()
    assert again.ended.pop("cloud") == (OVER, True) and set(again.ended.values()) == {OVER}
    assert not any("round " in line for lines in again.told.values() for line in lines[2:])
    assert "epsilon 4 of 5 is spent" in again.told["device-0"][2]


def test_who_comes_when_the_run_has_ended_hears_it_of_its_parent(rehearsal, monkeypatch):
    """Who missed the cloud's ten seconds waited for ever, and all below it."""
    Running(rehearsal)
    state = rehearsal.folder / "state"
    for name in ("device-0", "server-1-0", "device-1"):
        (state / name / "ended.json").unlink()
    ((run, told),) = json.loads((state / "cloud/ended.json").read_text()).items()
    told = {run: told | {"told": ["server-1-1"]}}
    (state / "cloud/ended.json").write_text(json.dumps(told))
    monkeypatch.setattr(process, "GrpcLinks", Hasty)
    again = Running(rehearsal, only=["cloud", "server-1-0", "device-0"])
    assert set(map(str, again.ended.values())) == {str((OVER, True)), OVER}
    assert "device-1: not told yet; start this node again to tell them" in again.told["server-1-0"]
    assert not any("not told yet" in line for line in again.told["cloud"])


@pytest.mark.parametrize(
    ("budgets", "trusted", "refuses", "words"),
    [
        ({"device-0": 3.0}, True, "device-0", "round 2 would bring its epsilon to 4"),
        ({"device-0": 1.0}, True, "device-0", "round 1 would bring its epsilon to"),
        ({}, False, "device-3", "server-1-1 would be sent un-noised vectors"),
    ],
    ids=["budget", "no budget", "trust"],
)
def test_a_refusal_is_one_line_at_the_node_and_at_each_parent(
    rehearsal, budgets, trusted, refuses, words
):
    running = Running(rehearsal, budgets, trusted)
    line, as_planned = running.ended["cloud"]
    parent = "server-1-0" if refuses == "device-0" else "server-1-1"
    assert not as_planned and words in line and line.startswith("the run is stopped: ")
    assert any(words in told for told in running.told[parent])
    refusals = [child["refusal"] for child in running.statuses[parent]["children"].values()]
    assert any(refusal and words in refusal["text"] for refusal in refusals)
    assert words in running.statuses["cloud"]["last_refusal"]["text"]
    if refuses == "device-0":
        assert sum(words in told for told in running.told[refuses]) == 1
        assert words in running.ended[refuses]
    assert not (rehearsal.folder / "data").exists()
    spent = (rehearsal.folder / "state" / refuses / "budget.log").exists()
    assert spent is (budgets.get("device-0") == 3.0)


def test_a_budget_that_is_used_up_stops_nobody_else_where_others_are_done_without(tmp_path):
    """Behind their own noise alone: below servers that nobody trusts."""
    skip = {"deployment.on_missing": "skip", "topology.trust.ratios": [0.0], "algorithm": "ldp"}
    running = Running(prepare(configured(SMALL, skip), tmp_path), {"device-0": 3.0})
    assert running.ended["cloud"] == (OVER, True)
    words = "without device-0 (round 2 would bring its epsilon to"
    assert sum(words in line for line in running.told["server-1-0"]) == 1
    assert "was refused; the run is over" in running.ended["device-0"]
    assert running.ended["device-1"] == OVER


@pytest.mark.parametrize(
    ("algorithm", "fails"), [("hfl_dp", "device"), ("cdp", "cloud"), ("m2fdp", "server")]
)
def test_a_model_too_long_for_its_steps_ends_every_node_in_a_line(tmp_path, algorithm, fails):
    """Noise makes it so. No process dies of it, to be started again and to draw anew."""
    loud = {"privacy.mechanism": "gradient", "privacy.epsilon": 1e-5, "algorithm": algorithm}
    trust = {"topology.trust.ratios": [1.0]} if fails == "server" else {}
    rehearsal = prepare(configured(SMALL, loud, trust), tmp_path)
    running = Running(rehearsal)
    words = "long before a local step, and rounding moves it by more than an eighth"
    for name, ended in running.ended.items():
        line = ended[0] if isinstance(ended, tuple) else ended
        assert words in line and "\n" not in line, (name, line)
    assert running.ended.keys() == running.told.keys()
    refused = {
        name
        for name in running.told
        for log in rehearsal.folder.glob(f"state/{name}/places.log")
        if '"refused": ' in log.read_text()
    }
    assert {name.split("-")[0] for name in refused} == ({fails} - {"cloud"})


def cloud_with_records(*changes) -> Server:
    """The cloud of nodes, which holds the digits' test records."""
    experiment, plan = planned(REHEARSAL, *changes)
    rows = experiment.held_out
    held_out = experiment.dataset.images[rows], experiment.dataset.labels[rows]
    return Nodes(experiment, plan, recompute(plan, held_out), None, guarded=False).open_all().cloud


def trained_by(cloud, folder, begin=lambda round_: None):
    return process.run_rounds(cloud, begin, folder, SILENT)


def weights_of(trained):
    return parameters_to_vector(trained.state_dict.values())


def test_rounds_are_evaluated_on_the_cloud_s_records(tmp_path):
    trained = trained_by(cloud_with_records(), tmp_path)
    experiment, _ = planned(REHEARSAL)
    assert torch.equal(weights_of(trained), reference(experiment)[0])
    found = experiment.evaluate(trained.state_dict)
    assert (trained.accuracy, trained.loss) == (found.accuracy, found.loss)
    columns = ["energy_j", "delay_s", "epsilon"]
    simulated = experiment.train().metrics[columns]
    pd.testing.assert_frame_equal(trained.metrics[columns], simulated)


def test_a_cloud_that_was_killed_goes_on_where_it_was(tmp_path):
    cloud = cloud_with_records()
    whole = trained_by(cloud, tmp_path / "whole")
    asked = []

    def dies_at_the_third(round_):
        asked.append(round_)
        if len(asked) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained_by(cloud, tmp_path / "cut", dies_at_the_third)
    again = trained_by(cloud, tmp_path / "cut", asked.append)
    assert asked == [1, 2, 3, 3]
    assert torch.equal(weights_of(again), weights_of(whole))
    pd.testing.assert_frame_equal(again.metrics, whole.metrics)
    asked.clear()
    trained_by(cloud_with_records({"seed": 1}), tmp_path / "cut", asked.append)
    assert asked == [1, 2, 3], "another plan's checkpoints are none of this run"


def test_a_refusal_ends_the_run(tmp_path):
    cloud = cloud_with_records()
    cloud.links.children[0].compute = lambda question: to_bytes(torch.zeros(1, 3))
    with pytest.raises(ChildrenError):
        trained_by(cloud, tmp_path)


def test_a_run_says_whom_its_promise_rests_on():
    node = cloud_with_records().node
    summary = process.promised(node)
    assert summary["epsilon_verified"] == pytest.approx(4.0, rel=1e-3)
    rests = "\n".join(summary["assumptions"])
    assert "have signed that they add it: server-1-1, device-0, device-1" in rests
    assert "a rehearsal" in rests and "floating-point" not in rests
    assert summary["deployed"] == {"nodes": 7, "plan": node.plan.digest.hex(), "rehearsal": True}
    real = process.promised(tree_of().cloud.node)
    assert "floating-point" in "\n".join(real["assumptions"]) and not real["deployed"]["rehearsal"]


@pytest.mark.full
def test_evaluation_takes_the_cloud_s_folder(project, kedro_run):
    cloud = cloud_with_records()
    process.write_run(cloud.node, trained_by(cloud, project / "state"), project)
    kedro_run("--pipelines=data,evaluation", PARAMS, code=0)
    card = (project / "data/08_reporting/single/privacy_card.md").read_text()
    assert "noise is added by those who have signed" in card and "a rehearsal" in card
    mlflow.set_tracking_uri(f"sqlite:///{project}/mlruns/mlflow.db")
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert run.data.tags["deployed"] == "rehearsal"
    assert run.data.tags["privacy"] == "verified"
