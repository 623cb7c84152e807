"""The command `m2fdp`, as its users type it: what it prints, and how it ends."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from tests.deployment.trees import BASE, experiment_of, facts_of

from m2fdp.deployment.commands import main

MASKS = "secure_aggregation.layers=2,secure_aggregation.protocol=masks"
PARAMS = "topology.fanouts=2|2,training.rounds=3,privacy.mechanism=upload"


def m2fdp(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    if code:
        assert "Traceback" not in result.output and result.output.count("\n") <= 2
    return result.output


@pytest.fixture
def made(tmp_path):
    """A folder with an authority, keys of two nodes, and a plan."""
    m2fdp("keys", "authority", tmp_path / "authority")
    for name in ("device-3", "cloud"):
        own = tmp_path / name
        m2fdp("keys", "request", name, "--keys", own)
        m2fdp("keys", "sign", own / f"{name}.csr", "--authority", tmp_path / "authority")
    plan(tmp_path)
    return tmp_path


def plan(folder, params=PARAMS, code=0):
    facts = facts_of(experiment_of())
    nodes = {"servers": facts.addresses, "devices": facts.records}
    nodes |= {"shape": facts.shape, "classes": facts.classes}
    (folder / "nodes.yml").write_text(json.dumps(nodes))
    options = ("--nodes", folder / "nodes.yml", "--authority", folder / "authority")
    return m2fdp("plan", "--params", params, *options, "-o", folder / "plan.json", code=code)


def test_a_plan_says_who_adds_noise_and_what_every_device_spends(made):
    told = plan(made)
    assert told.count("adds noise") == 3 and told.count(": epsilon 4\n") == 4
    assert "server-1-1 adds noise: message" in told
    assert BASE["training.rounds"] == 3 and "3 rounds" in told


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ("training.participation=0.5", "training.participation = 0.5: a tree of nodes"),
        ("secure_aggregation.layers=2", "secure_aggregation.protocol = 'ideal': a sum of nodes"),
        (f"{MASKS},privacy.mechanism=gradient", "secure_aggregation.layers = [2]: needs noise"),
        (
            f"{MASKS},secure_aggregation.decode=cloud,training.local_aggregation=null",
            "secure_aggregation.decode = 'cloud': a sum of",
        ),
        (f"{MASKS},secure_aggregation.dropout=0.1", "secure_aggregation.dropout = 0.1: a sum of"),
        (f"{MASKS},privacy.clipping_norm=9e7", "secure_aggregation.protocol = 'masks': leaves 0"),
        ("topology.nothing=1", "topology.nothing"),
        ("nonsense", "--params = 'nonsense': give KEY=VALUE"),
    ],
)
def test_what_nodes_can_not_do_ends_in_one_line(made, params, line):
    assert line in plan(made, f"{PARAMS},{params}", code=2)


def test_nodes_that_are_misplaced_end_in_one_line(made):
    at = (made / "plan.json", "--keys", made / "device-3", "--as")
    held = made / "own.npz"
    np.savez(held, x=np.zeros((4, 8, 8), np.uint8), y=np.zeros(4, np.int64))
    assert "is a device; use m2fdp join" in m2fdp("serve", *at, "device-3", code=2)
    joins = ("--data", held, "--budget", "4")
    assert "the plan says that device-3 has" in m2fdp("join", *at, "device-3", *joins, code=2)
    own = (made / "plan.json", "--keys", made / "cloud", "--as", "cloud")
    assert "the cloud needs records" in m2fdp("serve", *own, code=2)
    assert "is a server; use m2fdp serve" in m2fdp("join", *own, *joins, code=2)
    missing = m2fdp("join", made / "plan.json", "--keys", made, "--as", "device-0", *joins, code=2)
    assert "can't be read; see m2fdp keys" in missing


def test_lines_as_json_are_so_to_the_end(made):
    own = (made / "plan.json", "--keys", made / "cloud", "--as", "cloud", "--log", "json")
    (line,) = m2fdp("serve", *own, code=2).splitlines()
    said = json.loads(line)
    assert (said["level"], said["event"], said["node"]) == ("error", "error", "cloud")
    assert "the cloud needs records" in said["text"]
    missing = m2fdp("serve", *own, "--metrics", "0", "--data", made / "none.npz", code=2)
    assert "no such file" in json.loads(missing)["text"]


def test_a_rehearsal_s_plan_is_taken_by_those_who_say_so(made):
    plan(made, f"{PARAMS},deployment.rehearsal=true")
    arguments = ("join", made / "plan.json", "--keys", made / "device-3", "--as", "device-3")
    refused = m2fdp(*arguments, "--data", "none.npz", "--budget", "4", code=2)
    assert "is a rehearsal's, whose noise protects nobody" in refused
    told = m2fdp("check", made / "plan.json", "--as", "device-3", "--keys", made / "device-3")
    assert "a rehearsal: noise is drawn from the seed" in told and "epsilon 4 in all" in told
