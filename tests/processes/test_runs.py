"""Kedro runs and studies whose rounds are computed by a Ray cluster of two nodes."""

import sys

import pytest
import torch

ROUNDS = "training.rounds=4,training.checkpoint_every=10,threads=1"
# Below 20 servers there are two blocks.
DEEP = f"{ROUNDS},topology.fanouts=20|2,training.local_aggregation=null"


def model_of(project, cell="single"):
    state = torch.load(project / f"data/06_models/{cell}/model.pt", weights_only=True)
    return {name: values.numpy().tobytes() for name, values in state.items()}


def test_without_ray_one_line_says_how_to_install_it(project, kedro_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = kedro_run("--params=execution.engine=ray", code=2)
    (line,) = result.output.splitlines()
    assert (
        line == "Error: execution.engine = 'ray': needs Ray: pip install -r requirements-ray.lock"
    )
    assert not (project / "data/06_models").exists()


@pytest.mark.full
def test_a_run_gives_equal_bytes_and_goes_on_with_another_number_of_cores(
    project, kedro_run, ray_cluster, monkeypatch
):
    from m2fdp.core.engine.process import SitesLostError
    from m2fdp.processes.sites import RaySites

    kedro_run(f"--params={DEEP}", code=0)
    expected = model_of(project)
    on_ray = f"{DEEP},execution.engine=ray,execution.address={ray_cluster}"
    result = kedro_run(f"--params={on_ray},cell=ray", code=0)
    assert "Ray: 2 cores of 2 nodes (" in result.output
    assert model_of(project, "ray") == expected
    compute, rounds = RaySites.compute, []

    def two_rounds(*arguments):
        rounds.append(None)
        if len(rounds) > 2:
            raise SitesLostError("Ray: no node is left that computes the rounds.")
        return compute(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RaySites, "compute", two_rounds)
        result = kedro_run(f"--params={on_ray},cell=cut", code=1)
    last = " ".join(" ".join(result.output.splitlines()[-3:]).split())
    assert last.endswith(
        "Error: Ray: no node is left that computes the rounds. Round 2 is saved; the same command "
        "with resume=true in --params goes on from there."
    )
    on_one = f"{on_ray},execution.workers=1,cell=cut,resume=true"
    kedro_run(f"--params={on_one}", code=0)
    assert model_of(project, "cut") == expected


@pytest.mark.full
def test_a_cluster_of_this_machine_alone_is_started_for_a_run(project, kedro_run):
    pytest.importorskip("ray", reason="Ray is an extra: requirements-ray.lock")
    kedro_run(f"--params={DEEP}", code=0)
    result = kedro_run(f"--params={DEEP},execution.engine=ray,cell=ray", code=0)
    assert "Ray: 1 core of 1 node (" in result.output  # threads=1
    assert model_of(project, "ray") == model_of(project)
