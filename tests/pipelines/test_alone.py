"""Pipelines on their own: what lies on the disk is read and checked, the rest is made again."""

import json
import shutil

import pandas as pd
import pytest
import torch
from tests.finished import RUNS, SEED, SMALL, all_runs

MANIFEST = "data/05_model_input/single/manifest.csv"
MODEL = "data/06_models/single/model.pt"
METRICS = "data/07_model_output/single/round_metrics.csv"
CONFUSIONS = "data/07_model_output/single/confusion_matrix.csv"
PRIVACY = "data/08_reporting/single/privacy_summary.json"
SUMMARY = "data/08_reporting/single/run_summary.json"


@pytest.fixture
def alone(kedro_run):
    """`kedro run` of one pipeline; returns its exit code and the last line that it wrote."""

    def invoke(pipeline, params=SMALL, *arguments):
        result = kedro_run("--pipelines", pipeline, "--params", params, *arguments)
        lines = result.output.splitlines()
        assert "Traceback" not in result.output
        print(result.output)
        return result.exit_code, lines[-1] if lines else ""

    return invoke


@pytest.fixture
def trained(project, finished_run):
    """The files of a run of `SMALL`, as a run before has left them."""
    finished_run(*RUNS["training"]).copy_data(project)
    return project


def test_one_after_the_other_they_leave_what_one_run_leaves(trained, alone):
    files = (MANIFEST, MODEL, METRICS, CONFUSIONS, PRIVACY, SUMMARY)
    whole = {file: (trained / file).read_bytes() for file in files}
    shutil.rmtree(trained / "data")
    for pipeline in ("data", "training", "evaluation"):
        assert alone(pipeline)[0] == 0
    assert {file: (trained / file).read_bytes() for file in files} == whole
    assert all(run.info.status == "FINISHED" for run in all_runs())
    assert all_runs()[0].data.tags["privacy"] == "verified"


def test_training_takes_the_users_own_split(project, alone):
    assert alone("data")[0] == 0
    manifest = pd.read_csv(project / MANIFEST)
    train = manifest["split"] == "train"
    manifest.loc[train, "device"] = manifest.loc[train, "sample"] % 12
    manifest.to_csv(project / MANIFEST, index=False)
    own_split = (project / MANIFEST).read_bytes()
    assert alone("training")[0] == 0
    assert (project / MANIFEST).read_bytes() == own_split
    assert alone("evaluation")[0] == 0
    assert json.loads((project / SUMMARY).read_text())["rounds"] == 3


def test_a_score_is_drawn_once_however_often_a_model_is_evaluated(project, alone):
    """Of two draws the noise would half average out."""
    held_out = "partition.validation_fraction=0.2,partition.held_out_by=devices"
    params = f"{SMALL},{held_out},training.evaluate_on=validation"
    scores = []
    assert alone("data", params)[0] == alone("training", params)[0] == 0
    for _ in range(2):
        assert alone("evaluation", params)[0] == 0
        scores.append(json.loads((project / SUMMARY).read_text())["score"])
    assert scores[0] == scores[1] == pd.read_csv(project / METRICS)["score"].iloc[-1]


def edited(column, value, rows=0):
    def edit(path):
        table = pd.read_csv(path)
        table[column] = table[column].astype(object)
        table.loc[rows, column] = value
        table.to_csv(path, index=False)

    return edit


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without(column):
    return lambda path: pd.read_csv(path).drop(columns=column).to_csv(path, index=False)


def garbled(path):
    path.write_text('a,b\n"1,2\n3,4,5\n')


def few_devices(path):
    table = pd.read_csv(path)
    table.loc[table["device"] >= 0, "device"] %= 11
    table.to_csv(path, index=False)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (garbled, "can't be read (ParserError"),
        (without("label"), "has the columns ['dataset', 'sample', 'split', 'device']"),
        (edited("device", "seven"), "device 'seven'\": is none of topology's 12; valid: -1 for"),
        (edited("label", 2.5), "has label"),
        (edited("label", None), "no label is null"),
        (edited("sample", 100_000), "100000: is no sample; digits has 0 to 1796"),
        (edited("label", 9), "label 9 of sample"),
        (edited("dataset", "mnist", slice(None)), "dataset.name: mnist"),
        (few_devices, "'11 devices': topology has 12"),
    ],
)
def test_a_manifest_that_can_not_be_trained_on_is_one_line(trained, alone, damage, says):
    damage(trained / MANIFEST)
    before = (trained / MODEL).read_bytes()
    code, line = alone("training")
    assert code == 2
    assert line.startswith("Error: ") and MANIFEST in line and says in line
    assert (trained / MODEL).read_bytes() == before


def as_model(make):
    return lambda path: torch.save(make(torch.load(path, weights_only=True)), path)


def times(factor):
    return as_model(lambda state: {name: value * factor for name, value in state.items()})


SOFTMAX = "model.name = 'softmax':"
OTHER = "parameters 1.weight (10, 64); model.pt holds weight"


@pytest.mark.parametrize(
    ("file", "damage", "says"),
    [
        (MODEL, truncated, f"file = '{MODEL}': can't be read (RuntimeError"),
        (MODEL, as_model(lambda state: [1, 2]), "no state dict"),
        (
            MODEL,
            as_model(lambda state: {"weight": torch.zeros(10, 64)}),
            f"{SOFTMAX} has the {OTHER}",
        ),
        (MODEL, times(torch.nan), f"{SOFTMAX} 1.weight of model.pt is not all numbers"),
        (MODEL, times(-1.0), f"{METRICS} = 'accuracy 0"),
        (METRICS, without("accuracy"), f"{METRICS} = 'accuracy': is missing"),
        (METRICS, edited("loss", "low"), f"{METRICS} = 'loss': is not a number in every row"),
        (METRICS, edited("accuracy", 0.01, 2), f"{METRICS} = 'accuracy 0.01 in the last round'"),
        (PRIVACY, truncated, f"file = '{PRIVACY}': can't be read (JSONDecodeError"),
        (
            PRIVACY,
            lambda path: path.write_text('{"guarantee": "verified", "epsilon_verified": 0.1}'),
            "privacy_summary.json = 'epsilon_verified 0.1': the last round",
        ),
    ],
)
def test_a_damaged_or_foreign_file_is_not_evaluated(trained, alone, file, damage, says):
    damage(trained / file)
    before = (trained / SUMMARY).read_bytes()
    code, line = alone("evaluation")
    assert code == 2
    assert says in line
    assert (trained / SUMMARY).read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ("model.name=svm", "model.name = 'svm': model.pt was trained with softmax"),
        ("seed=1", f"seed = 1: model.pt was trained with {SEED}"),
        ("privacy.epsilon=1", "privacy.epsilon = 1.0: model.pt was trained with 4.0"),
    ],
)
def test_a_model_of_another_configuration_is_not_evaluated(trained, alone, changed, says):
    code, line = alone("evaluation", f"{SMALL},{changed}")
    assert code == 2
    assert says in line


def contents(project):
    files = [path for path in (project / "data").rglob("*.*") if path.name != ".lock"]
    return {path: path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("pipeline", ["privacy", "audit", "attack", "bound"])
def test_the_promise_of_another_configuration_is_not_put_beside_a_model(trained, alone, pipeline):
    before = contents(trained)
    code, line = alone(pipeline, f"{SMALL},privacy.epsilon=1")
    assert code == 2
    assert line == (
        "Error: privacy.epsilon = 1.0: model.pt was trained with 4.0; give that, or this run a "
        "cell of its own with cell=NAME"
    )
    assert contents(trained) == before
    assert all_runs() == []
    # Part of it neither.
    code, line = alone("privacy", f"{SMALL},privacy.epsilon=1", "--to-outputs=privacy_ledger")
    assert code == 2 and "model.pt was trained with 4.0" in line


def test_the_same_promise_and_what_audits_ask_go_beside_a_model(trained, alone):
    before = (trained / PRIVACY).read_bytes()
    for params in (SMALL, f"{SMALL},attack.shadows=64,audit.repetitions=50,device=cpu,threads=1"):
        assert alone("privacy", params)[0] == 0
        assert (trained / PRIVACY).read_bytes() == before
    assert alone("privacy", f"{SMALL},privacy.epsilon=1,cell=other")[0] == 0
    (trained / MODEL).unlink()
    assert alone("privacy", f"{SMALL},privacy.epsilon=1")[0] == 0


def test_what_was_found_of_a_model_goes_with_it(trained, alone):
    evaluations = (CONFUSIONS, SUMMARY, "data/08_reporting/single/privacy_card.md")
    assert all((trained / file).exists() for file in evaluations)
    assert alone("training", f"{SMALL},privacy.epsilon=1")[0] == 0
    assert not any((trained / file).exists() for file in evaluations)
    assert json.loads((trained / PRIVACY).read_text())["epsilon_nominal"] == 1


def test_a_model_without_metrics_still_gets_its_confusion_matrix(trained, alone):
    (trained / METRICS).unlink()
    before = (trained / CONFUSIONS).read_bytes()
    code, line = alone("evaluation")
    assert code == 2
    assert f"file = '{METRICS}': no such file; kedro run --pipelines=training makes it" in line
    (trained / CONFUSIONS).unlink()
    assert alone("evaluation", SMALL, "--to-outputs=confusion_matrix_figure")[0] == 0
    assert (trained / CONFUSIONS).read_bytes() == before


@pytest.mark.parametrize("pipeline", ["training", "evaluation"])
def test_without_the_files_before_it_one_line_names_the_pipeline_to_run(project, alone, pipeline):
    code, line = alone(pipeline)
    assert code == 2
    assert line == f"Error: file = '{MANIFEST}': no such file; kedro run --pipelines=data makes it"
    assert all_runs() == []


def test_nodes_that_need_what_only_lives_in_memory_are_one_line(trained, kedro_run):
    result = kedro_run("--from-nodes=train_model", "--params", SMALL, code=2)
    assert result.stderr == (
        "Error: --from-nodes = 'train_model': experiment lives in memory only; "
        "select assemble, which makes it, too\n"
    )
