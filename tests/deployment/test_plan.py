"""The plan: what follows from its facts is found again by every node, or refused."""

import json

import numpy as np
import pytest
from tests.deployment.trees import REHEARSAL, configured, experiment_of, facts_of, planned

from m2fdp.core.errors import InputError
from m2fdp.deployment import keys
from m2fdp.deployment.facts import read_facts
from m2fdp.deployment.node_plan import node_plan
from m2fdp.deployment.plan import PublicPlan, load_plan, make_plan, own_inputs, recompute
from m2fdp.deployment.process import told_of


@pytest.fixture
def plan():
    return planned()[1]


def changed(plan, *path, value):
    content = json.loads(json.dumps(plan.content))
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value(inner[path[-1]])
    return PublicPlan(content)


def test_a_plan_is_found_again_from_its_facts(plan):
    recomputed = recompute(plan)
    experiment = experiment_of()
    assert recomputed.experiment.ledger().equals(experiment.ledger())
    assert recomputed.epsilon(0, recomputed.rounds) == plan.content["epsilon"]["device-0"]
    assert make_plan(configured(), plan.facts).digest == plan.digest


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("noise", "device-0", "message"), lambda x: x / 2, "noise.device-0.message"),
        (("noise", "server-1-1"), lambda x: {}, "noise.server-1-1.message"),
        (("epsilon", "device-1"), lambda x: x / 2, "epsilon.device-1"),
        (("configuration", "privacy", "epsilon"), lambda x: x / 2, "less noise than its facts"),
    ],
    ids=["a device's noise", "a server's noise", "epsilon", "the configuration"],
)
def test_a_plan_that_promises_more_than_its_facts_is_refused(plan, path, value, words):
    with pytest.raises(InputError, match=words) as caught:
        recompute(changed(plan, *path, value=value))
    assert "refused" in str(caught.value) and "\n" not in str(caught.value)


def test_more_noise_than_its_facts_ask_for_is_no_fault(plan):
    recompute(changed(plan, "noise", "device-0", "message", value=lambda x: 2 * x))


def test_a_plan_that_the_authority_has_not_signed_is_refused(plan, tmp_path):
    for name in ("ours", "others"):
        keys.make_authority(tmp_path / name)
    file, certificate = tmp_path / "plan.json", (tmp_path / "ours/authority.pem").read_bytes()
    plan.save(file, tmp_path / "ours")
    assert load_plan(file, certificate).digest == plan.digest
    file.write_text(file.read_text().replace('"device-0": 3', '"device-0": 4', 1))
    with pytest.raises(InputError, match="is not signed by this node's authority"):
        load_plan(file, certificate)
    plan.save(file, tmp_path / "others")
    with pytest.raises(InputError, match="is not signed by this node's authority"):
        load_plan(file, certificate)
    file.write_text("{}")
    with pytest.raises(InputError, match="is no file of `m2fdp`"):
        load_plan(file, certificate)


def test_un_noised_vectors_reach_the_servers_up_to_the_head():
    deep = {"topology.fanouts": [2, 2, 2], "topology.trust.ratios": [0.5, 0.5]}
    recomputed = recompute(planned(deep)[1])
    readers = [recomputed.readers_in_clear(device) for device in range(8)]
    assert readers[0] == () and readers[-1] == ("server-2-3", "server-1-1")
    without = recompute(planned(deep, {"algorithm": "hfl"})[1])
    assert without.readers_in_clear(0) == ("server-2-0", "server-1-0", "cloud")


def test_who_does_without_nodes_counts_no_noise_of_theirs():
    skip = {"deployment.on_missing": "skip", "algorithm": "hfl_dp"}
    assert recompute(planned(skip)[1]).epsilon(0, 3) == pytest.approx(4.0, rel=1e-3)
    far = {**skip, "threat.distrusted": ["far_devices"], "topology.trust.ratios": [0.0]}
    with pytest.raises(InputError, match=r"deployment.on_missing = 'skip': does without"):
        planned(far)
    planned({**far, "deployment.on_missing": "stop"})


def test_the_ledger_of_who_does_without_nodes_says_so_to_every_observer():
    """What the cloud writes at the end, too."""
    experiment, plan = planned({"deployment.on_missing": "skip", "algorithm": "hfl_dp"})
    told, simulated = recompute(plan).experiment.ledger(), experiment.ledger()
    assert list(told.observer) == list(simulated.observer)
    assert (told.epsilon >= simulated.epsilon * (1 - 1e-9)).all()
    # A mean of noises is larger than one device's, and none of them is sure to be in it.
    (public,) = told[told.kind == "public"].epsilon.unique()
    assert public == pytest.approx(4.0, rel=1e-3)
    assert simulated[simulated.kind == "public"].epsilon.max() < 3


def test_servers_and_the_cloud_count_whomever_threat_distrusts():
    far = {"threat.distrusted": ["far_devices"], "algorithm": "hfl_dp"}
    experiment, plan = planned(far)
    recomputed = recompute(plan)
    assert experiment.calibration.mechanism.epsilon(3) < recomputed.epsilon(0, 3)


def test_a_tree_of_names_is_found_again_without_its_file(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text("parent,child\ntop,a\ntop,b\na,d1\na,d2\nb,d3\nb,d4\n")
    named = {"topology.fanouts": None, "topology.edges": str(edges)}
    experiment, plan = planned(named)
    edges.unlink()
    recomputed = recompute(plan)
    assert recomputed.network.tree.names == experiment.network.tree.names
    assert node_plan(plan, recomputed, "b").children == ("d3", "d4")


NODES = """
servers: {cloud: "h:1", server-1-0: "h:2", server-1-1: "h:3"}
devices: {device-0: 3, device-1: 3, device-2: 3, device-3: 3}
shape: [1, 8, 8]
classes: 10
"""


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("classes: 10", "", "valid: servers, devices, shape, classes"),
        ("classes: 10", "classes: 10\nmore: 1", "valid: servers, devices, shape, classes"),
        ("[1, 8, 8]", "[8, 8]", r"shape: \[C, H, W\]"),
        ('"h:2"', '"h"', "servers.server-1-0 = 'h': is no HOST:PORT"),
        ("device-3: 3", "other: 3", "the tree's devices are device-0"),
        ("server-1-1:", "edge:", "the tree's servers are cloud"),
        ("device-3: 3", "device-3: 0", "devices.device-3 = 0: a device has records"),
    ],
)
def test_a_file_of_nodes_is_refused_in_one_line(tmp_path, was, now, words):
    file = tmp_path / "nodes.yml"
    file.write_text(NODES.replace(was, now))
    with pytest.raises(InputError, match=words) as caught:
        make_plan(configured(), read_facts(file))
    assert "\n" not in str(caught.value)


def test_a_device_s_records_are_the_plan_s(plan):
    recomputed = recompute(plan)
    images, labels = np.zeros((2, 8, 8, 1), np.uint8), np.zeros(2, np.int64)
    with pytest.raises(InputError, match="2 records'.*its noise is made for them"):
        own_inputs(recomputed, 0, (images, labels))
    with pytest.raises(InputError, match=r"the plan's have \(C, H, W\) = \(1, 8, 8\)"):
        own_inputs(recomputed, 0, (images[:, :4], labels))


def test_a_device_finds_its_own_records_among_the_public_images(tmp_path):
    """The plan is made over black images, among which nobody's are found."""
    experiment = experiment_of()
    images, labels = experiment.dataset.images, experiment.dataset.labels
    np.savez(tmp_path / "public.npz", x=images[:60])
    public = {"features.public": str(tmp_path / "public.npz"), "features.folder": str(tmp_path)}
    config = configured(public, {"features.map": "patches", "features.dimension": 4})
    recomputed = recompute(make_plan(config, facts_of(experiment)))
    n_records = recomputed.facts.records["device-0"]
    others = slice(len(images) - n_records, None)
    own_inputs(recomputed, 0, (images[others], labels[others]))
    with pytest.raises(InputError, match="holds 60 of the [0-9]+ records of digits") as caught:
        own_inputs(recomputed, 0, (images[:n_records], labels[:n_records]))
    assert "\n" not in str(caught.value)


def test_an_operator_is_told_what_its_node_would_send():
    _, plan = planned(REHEARSAL)
    recomputed = recompute(plan)
    names = ("device-0", "device-3", "server-1-1", "cloud")
    lines = {name: "\n".join(told_of(node_plan(plan, recomputed, name))) for name in names}
    assert "adds noise of deviation" in lines["device-0"]
    assert "un-noised vectors reach: nobody" in lines["device-0"]
    assert "un-noised vectors reach: server-1-1 (--trusts)" in lines["device-3"]
    assert "adds noise" not in lines["device-3"] and "epsilon 4 in all" in lines["device-3"]
    assert "asks device-2, device-3" in lines["server-1-1"]
    assert "asks server-1-0, server-1-1" in lines["cloud"] and "a rehearsal" in lines["cloud"]


def test_a_name_that_no_node_has_is_refused(plan):
    with pytest.raises(InputError, match="is no node of the plan; it has cloud, server-1-0"):
        node_plan(plan, recompute(plan), "nobody")
