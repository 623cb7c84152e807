"""A private run leaves nothing that is neither covered by its promise nor declared outside it."""

import json
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import mlflow
import numpy as np
import pytest
import yaml
from mlflow import MlflowClient

from m2fdp.config import Config
from m2fdp.experiments import Experiment
from m2fdp.privacy.outside import CLEAR, DIAGNOSTICS

REPOSITORY = Path(__file__).parents[2]
# What no covered text may hold: long enough to be no part of another number.
SEED = 982451653
SMALL = f"topology.fanouts=4|3,training.rounds=3,training.local_steps=2,seed={SEED}"
FEW = "attack.shadows=16,attack.targets=40,partition.samples_per_device=20"
RUNS = {
    "training": ((), f"{SMALL},training.checkpoint_every=1"),
    "features": ((), f"{SMALL},features.map=scattering"),
    "audit": (("--pipelines", "audit"), f"{SMALL},audit.repetitions=100"),
    "inversion": (
        ("--pipelines", "attack"),
        f"{SMALL},topology.trust.ratios=[0.0],attack.observer=servers,attack.iterations=20",
    ),
    "membership": (("--pipelines", "attack"), f"{SMALL},attack.method=lira,{FEW}"),
    "bound": (("--pipelines", "bound"), SMALL),
    "tiers": ((), f"{SMALL},algorithm=m2fdp_tiers,model.name=cnn12,model.channels=2|3|4"),
    "control": (
        (),
        f"{SMALL},dataset.scale=unit_norm,control.enabled=true,control.smoothness=estimated,"
        "control.gap=papers",
    ),
    "zones": (
        ("--pipelines", "privacy"),
        f"{SMALL},algorithm=hfl_dp,topology.super_nodes.kind=elected,topology.fanouts=4|4",
    ),
}
# Why the rest tells of no record what epsilon does not cover.
COVERED = {
    "the released models, which epsilon is about": ("model.pt", "mlflow_model/*", "output *"),
    "configuration, tree and shard sizes, which are public: the ledger, the audit of canaries that "
    "are nobody's records, costs and plans": (
        "network.*",
        "privacy_ledger.*",
        "privacy_summary.json",
        "epsilon_over_rounds.*",
        "elections.csv",
        "zones_table.csv",
        "planned_rounds.*",
        "bound_layers.csv",
        "clock_*",
        "audit.json",
        "audit_bounds.png",
        "metric epsilon",
        "metric epsilon_*",
        "metric elections/*",
        "metric zones/*",
        "metric audit_epsilon_*",
        "metric rounds_trained",
        "tag privacy",
        "tag epsilon_as_*",
        "tag zones_infinite",
        "tag held_out",
        "tag diagnostic",
        "parameter *",
    ),
    "names and sizes of the data set, public too": (
        "tag dataset",
        "tag features",
        "tag split",
        "input name",
        "input profile",
        "input schema",
        "input source*",
        "input tag mlflow.data.context",
    ),
    "the code, the machine and who started it": (
        ".lock",
        "tag algorithm",
        "tag role",
        "tag version.*",
        "tag git_*",
        "tag kedro_version",
        "tag pipeline_names",
        "tag process",
        "tag mlflow.user",
        "tag mlflow.source.*",
        "run artifact_uri",
        "run experiment_id",
        "run lifecycle_stage",
        "run run_id",
        "run run_uuid",
        "run status",
        "run user_id",
    ),
}


def left_by(project, cell):
    """All that a cell's only run has left, by the name that it is declared under: its text, or
    None of what is none."""
    left = {}
    for path in (project / "data").rglob("*"):
        inside = path.relative_to(project).as_posix()
        if path.is_file() and path.name != ".gitkeep":
            left[inside.partition(f"/{cell}/")[2] or inside] = path
    (run,) = mlflow.search_runs(
        search_all_experiments=True, filter_string=f"tags.cell = '{cell}'", output_format="list"
    )
    client = MlflowClient()
    artifacts = Path(run.info.artifact_uri.removeprefix("file://"))
    left |= {
        path.relative_to(artifacts).as_posix(): path
        for path in artifacts.rglob("*")
        if path.is_file()
    }
    for output in run.outputs.model_outputs:
        model = mlflow.get_logged_model(output.model_id)
        left["output params"], left["output tags"] = str(model.params), str(model.tags)
        left["output metrics"] = str(model.metrics)
        folder = Path(model.artifact_location.removeprefix("file://"))
        for path in folder.rglob("*"):
            if path.is_file():
                left[f"output {path.relative_to(folder).as_posix()}"] = path
    texts = {
        name: path if isinstance(path, str) else None if is_binary(path) else path.read_text()
        for name, path in left.items()
    }
    metrics = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    texts |= {f"metric {name}": str([m.value for m in of]) for name, of in metrics.items()}
    texts["run timestamps"] = str([m.timestamp for of in metrics.values() for m in of])
    texts |= {f"tag {name}": value for name, value in run.data.tags.items()}
    texts |= {f"parameter {name}": value for name, value in run.data.params.items()}
    texts |= {f"run {name}": str(value) for name, value in dict(run.info).items()}
    for used in run.inputs.dataset_inputs:
        texts |= {f"input {name}": str(value) for name, value in dict(used.dataset).items()}
        texts |= {f"input tag {tag.key}": tag.value for tag in used.tags}
    return run, texts


def is_binary(path):
    return path.suffix in (".png", ".pt", ".ckpt", ".npy")


def matches(name, patterns):
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@cache
def files_of_catalog():
    catalog = yaml.safe_load((REPOSITORY / "conf/base/catalog.yml").read_text())
    entries = {name: entry for name, entry in catalog.items() if isinstance(entry, dict)}
    described = {name: entry.get("dataset", entry) for name, entry in entries.items()}
    return {
        name: Path(entry["filepath"]).name
        for name, entry in described.items()
        if "filepath" in entry
    }


def declared(rows=CLEAR):
    files = files_of_catalog()
    return [name for row in rows for name in (*(files[d] for d in row.datasets), *row.others)]


COVERS = [pattern for patterns in COVERED.values() for pattern in patterns]


def undeclared(texts, rows=CLEAR):
    """What is neither declared nor covered, or is covered by name and tells what must not be told:
    the seed, or the digest of the split."""
    told = declared(rows)
    rest = {name: text for name, text in texts.items() if not matches(name, told)}
    digest = texts["tag split_sha256"][:12]
    return {
        name
        for name, text in rest.items()
        if not matches(name, COVERS) or re.search(f"{SEED}|{digest}", text or "")
    }


@pytest.fixture
def private_run(project, kedro_run):
    """A function that makes one of `RUNS`, and returns MLflow's run and all that it has left."""

    def make(which):
        arguments, params = RUNS[which]
        result = kedro_run(*arguments, "--params", f"{params},cell={which}")
        assert result.exit_code == 0, result.output
        return left_by(project, which)

    return make


@pytest.mark.parametrize("which", RUNS)
def test_all_that_a_private_run_leaves_is_covered_or_declared(project, private_run, which):
    run, texts = private_run(which)
    assert len(texts) > 180
    assert undeclared(texts) == set()
    made = {name for name, file in files_of_catalog().items() if file in texts}
    assert set(run.data.tags["diagnostic"].split(", ")) == DIAGNOSTICS & made
    promised = json.loads(texts["privacy_summary.json"])
    assert promised["guarantee"] == ("conditional" if which == "control" else "verified")
    assert {str(row) for row in CLEAR} <= set(promised["outside_the_promise"])
    # Each declaration is needed: without it the same walk fails.
    for row in CLEAR:
        others = [other for other in CLEAR if other is not row]
        of_this = {name for name in texts if matches(name, declared([row]))}
        alone = of_this - {name for name in of_this if matches(name, declared(others))}
        if row.made_by != "control.enabled":  # other runs have energy and delay of their plan
            assert undeclared(texts, others) == alone


def test_what_nobody_declared_is_found(project, private_run):
    run, texts = private_run("zones")
    client, folder = MlflowClient(), project / "data/08_reporting/zones"
    (folder / "nearest_records.csv").write_text("sample,pixels\n")
    (project / "data/07_model_output/zones").mkdir(parents=True)
    (project / "data/07_model_output/zones/gradients.pt").write_bytes(b"\x80")
    (folder / "network.csv").write_text(f"node,noise_drawn_with\ncloud,{SEED}\n")
    client.log_artifact(run.info.run_id, folder / "privacy_summary.json", "records")
    client.set_tag(run.info.run_id, "first_record", "5")
    client.log_metric(run.info.run_id, "label_entropy", 1.0)
    artifact = Path(run.info.artifact_uri.removeprefix("file://")) / "network.csv"
    artifact.write_text((folder / "network.csv").read_text())
    assert undeclared(texts) == set()
    assert undeclared(left_by(project, "zones")[1]) == {
        "nearest_records.csv",
        "gradients.pt",
        "network.csv",
        "records/privacy_summary.json",
        "tag first_record",
        "metric label_entropy",
    }


def test_attacks_leave_training_records_and_say_so(project, private_run):
    """That the declaration is no mere caution."""
    _, texts = private_run("inversion")
    config = Config.model_validate({"partition": {"scheme": "iid"}})
    images = Experiment.from_config(config).dataset.images.reshape(-1, 64)
    found = json.loads(texts["attack.json"])["messages"][0]["pictures"][0]["truth"]
    shown = np.round(images * 255).astype(int)
    assert (shown == np.array(found).reshape(-1)).all(axis=1).any()
    assert matches("attack.json", declared())
    assert matches("attack.png", declared())


def test_every_file_of_the_catalog_is_covered_or_declared():
    for file in files_of_catalog().values():
        assert matches(file, declared()) != matches(file, COVERS), file


def test_the_page_on_privacy_has_the_same_table():
    files = files_of_catalog()
    lines = []
    for row in CLEAR:
        names = [*(files[name] for name in row.datasets), *row.others]
        made_by = row.made_by and f" (`{row.made_by}`)"
        lines.append(f"| {', '.join(f'`{name}`' for name in names)}{made_by} | {row.tells} |")
    assert "\n".join(lines) in (REPOSITORY / "docs/privacy.md").read_text(), "\n".join(lines)
