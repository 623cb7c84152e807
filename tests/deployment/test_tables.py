"""Devices with tables of their own: records by the plan's schema, and the simulator's bytes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from click.testing import CliRunner
from tests.deployment.test_commands import m2fdp
from tests.deployment.trees import Nodes, facts_of

from m2fdp import load_config
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.deployment.commands import main
from m2fdp.deployment.facts import read_facts
from m2fdp.deployment.plan import make_plan, own_inputs, read_own, recompute
from m2fdp.deployment.rehearsed import reference, simulated
from m2fdp.experiment import Experiment
from m2fdp.tables.schema import Schema, schema_of
from m2fdp.tables.table import own_rows

CLIENTS, ROWS, SEED = ("device-0", "device-1"), 60, 5
SCHEMA = {
    "label": {"column": "ill", "classes": {"healthy": [0], "ill": [1, 2]}},
    "client": "ward",
    "split": "part",
    "ignore": ["id"],
    "columns": {
        "age": {"range": [20, 100], "missing": []},
        "sex": {"categories": ["Male", "Female"]},
    },
}
PERSONS = SCHEMA | {"ignore": [], "record": {"column": "id", "rows": 2}}


def whole_table() -> pd.DataFrame:
    """Two wards, of whom a fifth is tested on; of a person there are three rows."""
    draws, n = np.random.default_rng(SEED), 2 * ROWS
    part = np.where(np.arange(n) // 3 % 5 == 4, "test", "train")
    return pd.DataFrame(
        {
            "id": np.arange(n) // 3,
            "age": draws.integers(15, 110, n),
            "sex": draws.choice(["Male", "Female", "other"], n),
            "ill": draws.integers(0, 3, n),
            "ward": np.repeat(CLIENTS, ROWS),
            "part": part,
        }
    )


class Clinics(Nodes):
    """Each device reads its own file."""

    def records(self, node):
        own = read_own(str(self.folder / f"{node.name}.csv"), node.plan.facts, print, test=False)
        return own_inputs(node.recomputed, node.index, own)


def configured(folder: Path, schema: dict) -> Config:
    """A run of all rows, and the nodes' files in a folder."""
    frame = whole_table()
    frame.to_csv(folder / "all.csv", index=False)
    (folder / "schema.yml").write_text(yaml.safe_dump(schema))
    for name in CLIENTS:
        own = frame[(frame.ward == name) & (frame.part == "train")]
        # What is known of all its rows may be there, or not.
        own.drop(columns=["part", "ward"][: 1 + (name == "device-1")]).to_csv(
            folder / f"{name}.csv", index=False
        )
    frame[frame.part == "test"].to_csv(folder / "held-out.csv", index=False)
    return load_config(keys_of(folder))


def keys_of(folder: Path) -> dict:
    return {
        "dataset.name": "table",
        "dataset.root": str(folder / "all.csv"),
        "dataset.schema": str(folder / "schema.yml"),
        "dataset.scale": "unit_norm",
        "partition.scheme": "column",
        "topology.fanouts": [2],
        "topology.trust.ratios": None,
        "training.local_aggregation": None,
        "training.rounds": 3,
        "privacy.mechanism": "upload",
        "deployment.rehearsal": True,
        "threads": 1,
    }


@pytest.mark.parametrize("schema", [SCHEMA, PERSONS], ids=["rows", "persons"])
def test_two_clinics_with_tables_end_in_the_simulator_s_bytes(tmp_path, schema):
    config = configured(tmp_path, schema)
    experiment = Experiment.from_config(simulated(config))
    release = experiment.simulation().randomness.noise.release
    written = schema_of(config.dataset).model_dump(mode="json")
    facts = replace(facts_of(experiment), schema=written)
    plan = make_plan(config, facts, release)
    held_out = read_own(str(tmp_path / "held-out.csv"), facts, print, test=True)
    recomputed = recompute(plan, held_out)
    nodes = Clinics(experiment, plan, recomputed, tmp_path, guarded=False).open_all()
    weights, ledger = reference(experiment)
    ended = nodes.run()
    assert torch.equal(ended, weights)
    assert recomputed.experiment.ledger().to_csv() == ledger.to_csv()
    model = experiment.model.unflatten(ended)
    ours, theirs = (each.evaluate(model) for each in (recomputed.experiment, experiment))
    assert (ours.accuracy, ours.loss) == (theirs.accuracy, theirs.loss)
    promise = recomputed.experiment.summary()
    assert promise.get("record") == experiment.summary().get("record")
    assert promise["guarantee"] == "verified"


def test_the_plan_carries_the_schema(tmp_path):
    configured(tmp_path, SCHEMA)
    (tmp_path / "nodes.yml").write_text(
        json.dumps({"servers": {"cloud": "127.0.0.1:1"}, "devices": dict.fromkeys(CLIENTS, 48)})
    )
    m2fdp("keys", "authority", tmp_path / "authority")
    own = tmp_path / "keys"
    m2fdp("keys", "request", "device-0", "--keys", own)
    m2fdp("keys", "sign", own / "device-0.csr", "--authority", tmp_path / "authority")
    params = ",".join(
        f"{key}={json.dumps(value)}".replace('"', "") for key, value in keys_of(tmp_path).items()
    )
    options = ("--authority", tmp_path / "authority", "-o", tmp_path / "plan.json")
    at = ("--params", params, "--nodes", tmp_path / "nodes.yml")
    assert "device-1: epsilon" in m2fdp("plan", *at, *options)
    (tmp_path / "schema.yml").unlink()
    (tmp_path / "all.csv").unlink()
    at = (tmp_path / "plan.json", "--keys", own, "--as", "device-0")
    assert "rows by the plan's schema: ill of age, sex" in m2fdp("check", *at)
    joins = ("join", *at, "--budget", "9", "--rehearsal", "--data")
    table = pd.read_csv(tmp_path / "device-0.csv")
    for change, words in (
        (table[:-1], "47 records': the plan says that device-0 has 48"),
        (table.assign(age="old"), "age: 'old' is no number, line 2"),
        (table.drop(columns="sex"), "lacks the column sex of the schema"),
        (table.assign(height=2), "has the column height, which the schema does not name"),
    ):
        change.to_csv(tmp_path / "own.csv", index=False)
        options = (*joins, tmp_path / "own.csv", "--state", tmp_path / words[:4])
        refused = CliRunner().invoke(main, [str(option) for option in options])
        assert refused.exit_code == 2 and words in refused.output.splitlines()[-1]


def test_a_node_reads_files_alone():
    """What a catalog or its code makes of records, the others' plan does not know."""
    schema = Schema.model_validate(SCHEMA)
    with pytest.raises(InputError, match="--data = 'catalog:mine': may be anybody's code"):
        own_rows("--data", "catalog:mine", schema, test=False)


def test_shape_and_classes_are_the_schema_s_alone(tmp_path):
    schema = schema_of(configured(tmp_path, PERSONS).dataset)
    nodes = {"servers": {"cloud": "a:1"}, "devices": {"device-0": 3}}
    (tmp_path / "nodes.yml").write_text(json.dumps(nodes))
    facts = read_facts(tmp_path / "nodes.yml", schema)
    assert facts.shape == (1, 2, 2 + 3 + 1 + 2) and facts.classes == 2
    (tmp_path / "nodes.yml").write_text(json.dumps(nodes | {"classes": 2}))
    with pytest.raises(InputError, match="valid: servers, devices"):
        read_facts(tmp_path / "nodes.yml", schema)
