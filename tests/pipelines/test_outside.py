"""A private run leaves nothing that is neither covered by its promise nor declared outside it."""

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from mlflow import MlflowClient
from tests.builders import digits
from tests.finished import REPOSITORY, RUNS, SEED, SMALL, all_runs, only_run, report

from m2fdp.reporting.outside import CLEAR, DIAGNOSTICS

# Files only where records name their clients.
OF_TABLES = {"metrics_by_client", "metrics_by_client_figure"}


def named(kind, names):
    return tuple(f"{kind} {name}" for name in names.split())


# Why the rest tells of no record what epsilon does not cover.
COVERED = {
    "the released models, which epsilon is about": ("model.pt", "mlflow_model/*", "output *"),
    "configuration, tree and shard sizes, which are public: the ledger, costs and plans": (
        *("network.*", "privacy_ledger.*", "privacy_summary.json", "epsilon_over_rounds.*"),
        *("elections.csv", "zones_table.csv", "planned_rounds.*", "bound_layers.csv", "clock_*"),
        *named("metric", "epsilon epsilon_* elections/* zones/* schedule/eta rounds_trained"),
        *named("tag", "privacy epsilon epsilon_as_* zones_infinite held_out diagnostic"),
        "parameter *",
    ),
    "names and sizes of the data set, public too": (
        *named("tag", "dataset features split"),
        *named("input", "name profile schema source*"),
        "input tag mlflow.data.context",
    ),
    "the code, the machine and who started it": (
        ".lock",
        *named("tag", "algorithm role version.* cpu cpu_capability code git_* kedro_version"),
        *named("tag", "pipeline_names process mlflow.user mlflow.source.*"),
        *named("run", "artifact_uri experiment_id lifecycle_stage run_id run_uuid status user_id"),
    ),
}


def left_by(project, run, client):
    """All that a project's only run has left, by the name that it is declared under: its text, or
    None of what is none."""
    things = {}
    for path in (project / "data").rglob("*"):
        name = path.relative_to(project).as_posix()
        if path.is_file() and path.name != ".gitkeep":
            things[name.partition("/single/")[2] or name] = path
    artifacts = Path(run.info.artifact_uri.removeprefix("file://"))
    things |= {
        path.relative_to(artifacts).as_posix(): path
        for path in artifacts.rglob("*")
        if path.is_file()
    }
    for output in run.outputs.model_outputs:
        model = client.get_logged_model(output.model_id)
        things["output params"], things["output tags"] = str(model.params), str(model.tags)
        # The run's own, on its own data set: declared, or covered, as these are.
        assert model.metrics is not None
        assert {metric.run_id for metric in model.metrics} <= {run.info.run_id}
        assert {metric.key for metric in model.metrics} <= run.data.metrics.keys()
        used = {each.dataset.digest for each in run.inputs.dataset_inputs}
        assert {metric.dataset_digest for metric in model.metrics} <= used
        folder = Path(model.artifact_location.removeprefix("file://"))
        for path in folder.rglob("*"):
            if path.is_file():
                things[f"output {path.relative_to(folder).as_posix()}"] = path
    texts = {
        name: path if isinstance(path, str) else None if is_binary(path) else path.read_text()
        for name, path in things.items()
    }
    histories = {
        name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics
    }
    for name, history in histories.items():
        texts[f"metric {name}"] = str([metric.value for metric in history])
    texts["run timestamps"] = str([m.timestamp for rows in histories.values() for m in rows])
    texts |= {f"tag {name}": value for name, value in run.data.tags.items()}
    texts |= {f"parameter {name}": value for name, value in run.data.params.items()}
    texts |= {f"run {name}": str(value) for name, value in dict(run.info).items()}
    for used in run.inputs.dataset_inputs:
        texts |= {f"input {name}": str(value) for name, value in dict(used.dataset).items()}
        texts |= {f"input tag {tag.key}": tag.value for tag in used.tags}
    return texts


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
    declarations = declared(rows)
    rest = {name: text for name, text in texts.items() if not matches(name, declarations)}
    digest = texts["tag split_sha256"][:12]
    return {
        name
        for name, text in rest.items()
        if not matches(name, COVERS) or re.search(f"{SEED}|{digest}", text or "")
    }


@pytest.mark.parametrize("which", RUNS)
def test_all_that_a_private_run_leaves_is_covered_or_declared(finished_run, which):
    finished = finished_run(*RUNS[which])
    texts = left_by(finished.project, finished.run, finished.client)
    assert len(texts) > 90
    assert undeclared(texts) == set()
    datasets = {name for name, file in files_of_catalog().items() if file in texts}
    diagnostics = finished.run.data.tags["diagnostic"]
    assert set(diagnostics.split(", ")) - OF_TABLES == DIAGNOSTICS & datasets
    promised = report(finished.project, "privacy_summary.json")
    assert promised["guarantee"] == ("conditional" if which == "control" else "verified")
    assert {str(row) for row in CLEAR} <= set(promised["outside_the_promise"])
    # Each declaration is needed: without it the same walk fails.
    for row in CLEAR:
        others = [other for other in CLEAR if other is not row]
        of_row = {name for name in texts if matches(name, declared([row]))}
        of_no_other = {name for name in of_row if not matches(name, declared(others))}
        if row.made_by != "control.enabled":  # other runs have energy and delay of their plan
            assert undeclared(texts, others) == of_no_other


def save_digits(path, change):
    """The digits as whole numbers, in a file of one's own, with some training records changed."""
    dataset, n = digits(), digits().n_train
    images = (dataset.images * 240).astype(np.uint8)
    images[change] = 255 - images[change]
    arrays = {"x_train": images[:n], "y_train": dataset.labels[:n]}
    np.savez(path, **arrays, x_test=images[n:], y_test=dataset.labels[n:])


def test_what_is_public_is_equal_beside_a_neighbour(project, kedro_run):
    """The same run on data sets that differ in one record's pixels: ledger, plans, costs, tags and
    parameters are equal to the letter, and the models are not."""
    found = []
    for change in ([], [7]):
        save_digits(project / "own.npz", change)
        kedro_run("--params", f"{SMALL},dataset.name=npz,dataset.root=own.npz", code=0)
        found.append(left_by(project, all_runs()[0], MlflowClient()))
        found[-1]["model.pt"] = (project / "data/06_models/single/model.pt").read_bytes()
    first, second = found
    _, *public = list(COVERED.values())[:3]
    names = {name for name in first if any(matches(name, patterns) for patterns in public)}
    names -= {name for name in names if matches(name, declared())}
    assert len(names) > 60 and first.keys() == second.keys()
    assert {name for name in names if first[name] != second[name]} == set()
    assert first["model.pt"] != second["model.pt"]


def test_what_nobody_declared_is_found(project, kedro_run):
    kedro_run(*RUNS["zones"], code=0)
    run, client, folder = only_run(), MlflowClient(), project / "data/08_reporting/single"
    texts = left_by(project, run, client)
    (folder / "nearest_records.csv").write_text("sample,pixels\n")
    (project / "data/07_model_output/single").mkdir(parents=True)
    (project / "data/07_model_output/single/gradients.pt").write_bytes(b"\x80")
    (folder / "network.csv").write_text(f"node,noise_drawn_with\ncloud,{SEED}\n")
    client.log_artifact(run.info.run_id, folder / "privacy_summary.json", "records")
    client.set_tag(run.info.run_id, "first_record", "5")
    client.log_metric(run.info.run_id, "label_entropy", 1.0)
    artifact = Path(run.info.artifact_uri.removeprefix("file://")) / "network.csv"
    artifact.write_text((folder / "network.csv").read_text())
    assert undeclared(texts) == set()
    assert undeclared(left_by(project, only_run(), client)) == {
        "nearest_records.csv",
        "gradients.pt",
        "network.csv",
        "records/privacy_summary.json",
        "tag first_record",
        "metric label_entropy",
    }


def test_attacks_leave_training_records_and_say_so(finished_run):
    """That the declaration is no mere caution."""
    attack = report(finished_run(*RUNS["inversion"]).project, "attack.json")
    truth = np.array(attack["messages"][0]["pictures"][0]["truth"]).reshape(-1)
    images = np.round(digits().images.reshape(-1, 64) * 255).astype(int)
    assert (images == truth).all(axis=1).any()
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
    page = (REPOSITORY / "docs/privacy/outside.md").read_text()
    assert "\n".join(lines) in page, "\n".join(lines)
