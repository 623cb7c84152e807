"""The cloud: rounds that go on after it was killed, and a folder that evaluation takes."""

import mlflow
import pandas as pd
import pytest
import torch
from tests.deployment.trees import REHEARSAL, Nodes, planned, tree_of
from torch.nn.utils import parameters_to_vector

from m2fdp.core.engine.training import SILENT
from m2fdp.deployment.links import to_bytes
from m2fdp.deployment.node_plan import ChildrenError
from m2fdp.deployment.nodes import Server
from m2fdp.deployment.plan import recompute
from m2fdp.deployment.process import promised, run_rounds, write_run
from m2fdp.deployment.rehearsed import reference

PARAMS = (
    "--params=topology.fanouts=2|2,training.rounds=3,privacy.mechanism=upload,"
    "dataset.confirmed=true"
)


def cloud_with_records(*changes) -> Server:
    """The cloud of nodes, which holds the digits' test records."""
    experiment, plan = planned(REHEARSAL, *changes)
    rows = experiment.held_out
    held_out = experiment.dataset.images[rows], experiment.dataset.labels[rows]
    return Nodes(experiment, plan, recompute(plan, held_out), None, guarded=False).open_all().cloud


def trained_by(cloud, folder, begin=lambda round_: None):
    return run_rounds(cloud, begin, folder, SILENT)


def weights_of(trained):
    return parameters_to_vector(trained.state_dict.values())


def test_rounds_are_evaluated_on_the_cloud_s_records(tmp_path):
    trained = trained_by(cloud_with_records(), tmp_path)
    experiment, _ = planned(REHEARSAL)
    weights, _ = reference(experiment)
    assert torch.equal(weights_of(trained), weights)
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
    summary = promised(node)
    assert summary["epsilon_verified"] == pytest.approx(4.0, rel=1e-3)
    rests = "\n".join(summary["assumptions"])
    assert "have signed that they add it: server-1-1, device-0, device-1" in rests
    assert "a rehearsal" in rests and "floating-point" not in rests
    assert summary["deployed"] == {"nodes": 7, "plan": node.plan.digest.hex(), "rehearsal": True}
    real = promised(tree_of().cloud.node)
    assert "floating-point" in "\n".join(real["assumptions"]) and not real["deployed"]["rehearsal"]


@pytest.mark.full
def test_evaluation_takes_the_cloud_s_folder(project, kedro_run):
    cloud = cloud_with_records()
    write_run(cloud.node, trained_by(cloud, project / "state"), project)
    kedro_run("--pipelines=data,evaluation", PARAMS, code=0)
    card = (project / "data/08_reporting/single/privacy_card.md").read_text()
    assert "noise is added by those who have signed" in card and "a rehearsal" in card
    mlflow.set_tracking_uri(f"sqlite:///{project}/mlruns/mlflow.db")
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert run.data.tags["deployed"] == "rehearsal"
    assert run.data.tags["privacy"] == "verified"
