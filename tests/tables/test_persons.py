"""Tables with several rows a person: a person is one record, and no row of theirs escapes the
clipping of all of them."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from click.testing import CliRunner
from PIL import Image
from tests.tables.test_table import CONTENT, rows_of, schema_of
from torch import nn

from m2fdp import Experiment
from m2fdp.adversaries.heard import heard_by
from m2fdp.adversaries.membership import Rule, epsilon_bound
from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import of_unit_norm
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.program import main
from m2fdp.reporting.cards import privacy_card, subject_of
from m2fdp.tables.describe import describe
from m2fdp.tables.encoding import encode
from m2fdp.tables.table import table_of

RECORD = {"record": {"column": "patient", "rows": 3}}
PEOPLE = CONTENT | RECORD


def visits(n: int = 200, persons: int = 50, **columns) -> pd.DataFrame:
    """Rows of patients, each of one hospital."""
    patient = np.random.default_rng(5).integers(persons, size=n)
    hospital = np.where(patient % 2, "Basel", "Bern")
    return rows_of(n, patient=patient, hospital=hospital, **columns)


def told(change) -> str:
    with pytest.raises(InputError) as refused:
        change()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_person_is_one_record_with_the_first_rows_in_the_file():
    frame = pd.DataFrame(
        {
            "age": [20, 60, 100, 60, 20, 20, 100, 60],
            "chol": 350,
            "sex": "Male",
            "patient": ["a", "b", "a", "a", "a", "c", "d", "c"],
            "hospital": "Basel",
            "ill": [0, 1, 1, 1, 1, 0, 1, 2],
            "split": ["train", "train", "train", "train", "train", "test", "train", "test"],
        }
    )
    table = table_of(frame, schema_of(split="split", **RECORD), seed=0)
    rows = table.images[..., 0]
    assert (rows.shape, table.n_train) == ((5, 3, 9), 3)
    assert rows[:, :, 0].tolist() == [[-1, 1, 0], [0, 0, 0], [1, 0, 0], [-1, 0, 0], [0, 0, 0]]
    healthy, ill, nobody = [1, 0], [1, 0.5], [0, 0]  # whether there is a row, label / classes
    assert rows[0, :, 7:].tolist() == [healthy, ill, ill]
    assert rows[1, :, 7:].tolist() == [ill, nobody, nobody]
    # The most common label of a person to train on, and of each row to test on its own.
    assert table.labels.tolist() == [1, 1, 1, 0, 1]
    note = "a record is a person (patient): 4 with 8 rows; 1 row beyond 3 of a person left out"
    assert table.notes == (note,)


def test_of_labels_that_are_as_common_the_first_counts():
    frame = visits(6).assign(patient=[0, 0, 1, 1, 2, 3], ill=[1, 0, 0, 1, 1, 0], hospital="Bern")
    frame["split"] = ["train"] * 5 + ["test"]
    table = table_of(frame, schema_of(split="split", **RECORD), seed=0)
    assert table.labels.tolist() == [1, 0, 1, 0]


def test_persons_are_dealt_tested_and_counted_and_no_row_is_on_both_sides():
    frame = visits()
    experiment = Experiment.from_frame(frame.assign(chol=frame.patient + 100), PEOPLE)
    dataset, n_train = experiment.dataset, experiment.dataset.n_train
    patients = (dataset.images[:, :, 1, 0] + 1) * 250
    there = dataset.images[:, :, 7, 0] > 0
    sides = [
        set(patients[part][there[part]].round()) for part in (np.s_[:n_train], np.s_[n_train:])
    ]
    assert len(sides[0]) == n_train == 40 and not sides[0] & sides[1]
    assert there[n_train:].sum(axis=1).tolist() == [1] * (len(there) - n_train)
    assert experiment.samples.sizes.sum() == n_train


def test_clients_of_few_persons_are_left_out_however_many_rows_they_have():
    frame = visits().assign(hospital=lambda f: np.where(f.patient == 7, "Chur", f.hospital))
    table = table_of(frame, schema_of(**RECORD), seed=0)
    assert "1 client with fewer than 2 persons left out: Chur" in table.notes


def test_each_row_has_length_one_and_not_the_bag():
    plain = Experiment.from_frame(visits(), PEOPLE)
    scaled = Experiment.from_frame(visits(), PEOPLE, {"dataset.scale": "unit_norm"})
    rows, of_length_one = plain.inputs.images, scaled.inputs.images
    assert np.array_equal(of_length_one[:, :, 7:], rows[:, :, 7:])
    lengths = np.linalg.norm(of_length_one[:, :, :7, 0], axis=2)
    assert np.allclose(lengths, rows[:, :, 7, 0])
    by_row = replace(plain.dataset, images=rows[:, :1, :7])
    assert np.array_equal(of_length_one[:, :1, :7], of_unit_norm(by_row).images)


def layer(shape, n_classes):
    """A module of one's own that is a single layer but for the shape that it takes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[2], n_classes))


def dropping(shape, n_classes):
    """A module whose masks are of single records."""
    return nn.Sequential(*layer(shape, n_classes), nn.Dropout(0.5))


def by_hand(experiment, vector: torch.Tensor, norm: float) -> torch.Tensor:
    """The sum of the persons' clipped sums of row gradients, by the model of a row: (M,)."""
    row, (features, _) = experiment.model.row, experiment.records(experiment.samples.samples)
    total, n_classes = torch.zeros_like(vector), experiment.dataset.n_classes
    for bag in features[:, 0]:
        of_person = torch.zeros_like(vector)
        for line in bag[bag[:, -2] == 1]:
            parameters = vector.clone().requires_grad_()
            scores = row.scores(parameters, line[None, None, None, :-2])
            loss = row.loss(scores, (line[-1:] * n_classes).round().long()).sum()
            of_person += torch.autograd.grad(loss, parameters)[0]
        total += of_person * min(1.0, norm / float(of_person.norm()))
    return total


@pytest.mark.parametrize("backend", ["reference", "sequential", "stacked"])
@pytest.mark.parametrize(
    "model", ["softmax", "logistic", "svm", "dense", "tests.tables.test_persons:layer"]
)
@pytest.mark.parametrize("most", [1, 3])
def test_the_engine_clips_the_sum_of_a_persons_rows(model, backend, most):
    keys = {
        "model.name": model,
        "training.backend": backend,
        "topology.fanouts": [1],
        "topology.edges": None,
        "topology.trust.ratios": None,
        "training": {"local_aggregation": None, "local_steps": 1, "batch_size": None, "rounds": 1},
        "partition.scheme": "iid",
        "privacy.clipping_norm": 1.5,
    }
    people = CONTENT | {"record": {"column": "patient", "rows": most}}
    experiment = Experiment.from_frame(visits(60, 20), people, keys)
    (mechanism,) = experiment.calibration.mechanisms
    noise = mechanism.noise
    silent = replace(
        noise, steps=noise.steps * 0, messages=tuple(scale * 0 for scale in noise.messages)
    )
    process = experiment.process(
        experiment.simulation(mechanisms=(replace(mechanism, noise=silent),))
    )
    start, plan = process.start(), experiment.run_plan.rounds[0]
    moved = process.round(start, plan).weights - start.weights
    expected = (
        -plan.step_size * by_hand(experiment, start.weights, 1.5) / experiment.dataset.n_train
    )
    assert torch.allclose(moved, expected, rtol=1e-4, atol=1e-6)


DEVICES, ROWS, DELTA, ALPHA = 8000, 8, 0.01, 0.005


@pytest.fixture(scope="module")
def attacked():
    """A function that plays one round of devices on full batches, each behind noise of its own.

    It tells what the cloud is sent along what a person of eight equal and extreme rows pushes, of
    devices without that person and with it: float64 (devices/2,) both.
    """
    names = [f"d{n}" for n in range(DEVICES)]
    loud = pd.DataFrame({"x": 1.0, "ill": 1, "device": np.repeat(names, ROWS), "person": "loud"})
    quiet = pd.DataFrame({"x": 0.5, "ill": 0, "device": names, "person": "quiet"})
    tested = pd.DataFrame({"x": [0.5], "ill": [0], "device": names[:1], "person": ["tested"]})
    frame = pd.concat([loud.assign(split="train"), quiet.assign(split="train")])
    frame = pd.concat([frame, tested.assign(split="test")], ignore_index=True)
    frame["person"] += frame["device"]
    schema = {
        "label": {"column": "ill", "classes": [0, 1]},
        "client": "device",
        "record": {"column": "person", "rows": ROWS},
        "split": "split",
        "columns": {"x": {"range": [0, 1]}},
    }
    keys = {
        "training": {"rounds": 1, "local_steps": 1, "batch_size": None, "backend": "stacked"},
        "privacy": {"epsilon": 1.0, "delta": DELTA, "clipping_norm": 0.5},
    }
    experiment = Experiment.from_frame(frame, schema, keys, seed=11)
    shards, plan = experiment.shards(), experiment.run_plan.rounds[0]
    is_loud = (shards.features[:, 0, :, 2].sum(1) == ROWS).numpy()
    has_person = np.arange(DEVICES) % 2 == 0

    def play(by_row: bool):
        owner = np.repeat(np.arange(DEVICES), shards.sizes)
        absent = is_loud & ~has_person[owner]
        played = replace(shards, absent=np.flatnonzero(absent))
        if by_row:
            bag, row = (shards.features[:, 0, :, 2] > 0).nonzero(as_tuple=True)
            rows = torch.zeros(len(bag), *shards.features.shape[1:])
            rows[:, :, 0] = shards.features[bag, :, row]
            sizes = np.bincount(owner[bag], minlength=DEVICES)
            of_rows = {
                "sizes": sizes,
                "nominal": shards.sizes,
                "absent": np.flatnonzero(absent[bag]),
            }
            played = replace(shards, features=rows, labels=shards.labels[bag], **of_rows)
        sent = []

        def tap(direction, layer, models):
            if direction == "up" and layer == 1:
                sent.append(models.double().clone())

        process = experiment.process(experiment.simulation(shards=played))
        heard_by(process, tap).round(process.start(), plan)
        # Class 1 is pulled up and class 0 down, by x = 1 and the bias alike.
        scores = sent[0] @ torch.tensor([-1.0, -1.0, 1.0, 1.0]).double()
        return scores[~has_person].numpy(), scores[has_person].numpy()

    return play, experiment.summary()["epsilon_verified"], experiment


def shown(absent: np.ndarray, present: np.ndarray) -> float:
    """On epsilon from below, by who is 1.5 standard deviations above the others: wrong with a
    probability of at most 1 %."""
    rule = Rule(True, absent.mean() + 1.5 * absent.std())
    return epsilon_bound(rule, absent, present, DELTA, ALPHA)


def test_an_attack_on_a_person_stays_below_epsilon(attacked):
    """A false alarm has a probability of at most 1 %, over seeds."""
    play, promised, _ = attacked
    assert promised == pytest.approx(1.0, abs=0.02)
    assert 0.4 < shown(*play(by_row=False)) <= promised


def test_the_same_attack_tells_on_rows_that_are_clipped_one_by_one(attacked):
    play, promised, _ = attacked
    assert shown(*play(by_row=True)) > 2 * promised


def test_labels_may_be_numbers():
    content = PEOPLE | {"label": {"column": "chol", "range": [100, 600]}}
    content["columns"] = {"age": {"range": [20, 100]}}
    content["ignore"] = ["sex", "ill"]
    experiment = Experiment.from_frame(visits(), content, {"training.rounds": 1})
    model, (bags, labels) = experiment.model, experiment.records(experiment.samples.samples[:2])
    weights = torch.tensor([0.3, -0.1])
    rows = [bag[0, bag[0, :, 2] == 1] for bag in bags]
    expected = [model.row.loss((row[:, :2] @ weights)[:, None], row[:, 3]).sum() for row in rows]
    losses = model.loss(model.scores(weights, bags), labels)
    assert torch.allclose(losses, torch.stack(expected), rtol=1e-5)
    assert "mae" in experiment.by_client(experiment.train().state_dict)


def shots(keys) -> Experiment:
    """Colour pictures of persons, of whom each has three."""
    rng, cells = np.random.default_rng(2), []
    for pixels in rng.integers(0, 256, (60, 8, 9, 3), dtype=np.uint8):
        Image.fromarray(pixels).save(content := io.BytesIO(), "png")
        cells.append(content.getvalue())
    persons = {"shot": cells, "who": np.repeat(np.arange(20), 3), "kind": np.resize([0, 1], 60)}
    schema = {
        "label": {"column": "kind", "classes": [0, 1]},
        "record": {"column": "who", "rows": 2},
        "columns": {"shot": {"image": [8, 9, 3]}},
    }
    keys = {"partition.scheme": "iid", "topology.fanouts": [1, 2], "training.rounds": 1} | keys
    return Experiment.from_frame(pd.DataFrame(persons), schema, keys)


def test_rows_may_be_pictures():
    experiment = shots({})
    assert experiment.classified == ((3, 8, 9), 2)
    model, (bags, _) = experiment.model, experiment.records(experiment.held_out)
    weights = torch.randn(model.n_parameters, generator=torch.Generator().manual_seed(0))
    by_rows = model.row.scores(weights, bags[:, 0, 0, :-2].reshape(-1, 3, 8, 9))
    assert torch.equal(model.answers(weights, bags), by_rows)
    drawn = np.random.default_rng(2).integers(0, 256, (60, 8, 9, 3), dtype=np.uint8)
    shown = (255 * bags[:, 0, 0, :-2].reshape(-1, 3, 8, 9)).round().byte().permute(0, 2, 3, 1)
    assert all((drawn == picture).all(axis=(1, 2, 3)).any() for picture in shown.numpy())
    assert len(experiment.train().metrics)


REFUSED = {
    "a person at two hospitals": (
        lambda: table_of(
            visits().assign(hospital=np.resize(["a", "b"], 200)), schema_of(**RECORD), 0
        ),
        "record: 33 persons have rows at several clients; valid: one client a person",
    ),
    "a person on both sides": (
        lambda: table_of(
            visits(split=np.resize(["train", "test"], 200)), schema_of(split="split", **RECORD), 0
        ),
        "have rows to train and to test on; valid: one split a person",
    ),
    "nobody": (
        lambda: table_of(visits().assign(patient=None), schema_of(**RECORD), 0),
        "patient: 'None' names nobody",
    ),
    "no bound of rows": (lambda: schema_of(record={"column": "patient"}), "schema.record.rows"),
    "no row": (lambda: schema_of(record={"column": "patient", "rows": 0}), "schema.record.rows"),
    "an input": (
        lambda: schema_of(record={"column": "age", "rows": 1}),
        "age has another part already",
    ),
    "a model of pictures": (
        lambda: shots({"model.name": "cnn12"}).check(),
        "model.name = 'cnn12': takes no rows of a person (`record` of the schema); valid: softmax",
    ),
    "dropout": (
        lambda: Experiment.from_frame(
            visits(), PEOPLE, {"model.name": "tests.tables.test_persons:dropping"}
        ).check(),
        "takes no rows of a person (`record` of the schema); valid: softmax, logistic, svm, linear",
    ),
    "features": (
        lambda: Experiment.from_frame(visits(), PEOPLE, {"features.map": "patches"}).check(),
        "features.map = 'patches': is not of a person's rows",
    ),
    "validation records": (
        lambda: Experiment.from_frame(
            visits(), PEOPLE, {"partition.validation_fraction": 0.1}
        ).check(),
        "partition.validation_fraction = 0.1: holds out persons, and models are judged by rows",
    ),
    "an attack on rows": (
        lambda: Experiment.from_frame(visits(), PEOPLE, {"attack.method": "lira"}).attack(),
        "attack.method = 'lira': is of records of one row",
    ),
}


@pytest.mark.parametrize(("change", "line"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_in_one_line(change, line):
    assert line in told(change)


def test_a_persons_rows_may_lie_in_any_parts_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yml").write_text(yaml.safe_dump(PEOPLE))
    visits().to_csv("rows.csv", index=False)
    monkeypatch.setattr("m2fdp.tables.frames._AT_A_TIME", 7)
    table = load_dataset(DatasetConfig(name="table", root="rows.csv", schema="schema.yml"))
    whole = table_of(visits(), schema_of(**RECORD), seed=0)
    assert np.array_equal(table.images, whole.images) and table.notes == whole.notes


def test_the_run_says_that_a_record_is_a_person():
    experiment = Experiment.from_frame(visits(), PEOPLE, {"training.rounds": 1})
    promised = experiment.summary()
    assert promised["guarantee"] == "verified"
    assert any("the column patient names persons" in line for line in promised["assumptions"])
    ledger = experiment.ledger()
    card = privacy_card(subject_of(experiment), promised, None, ledger, "kedro run").markdown()
    person = "one person (patient), of at most 3 rows"
    assert f"hides whether {person} is there or is not" in card
    assert "one record" not in card.split("## What this rests on")[0]
    assert any(
        line.startswith("a record is a person (patient): 50 with 200 rows")
        for line in experiment.warnings()
    )


def test_models_are_judged_by_rows_and_answer_raw_rows(tmp_path):
    import mlflow

    from m2fdp.pipelines.logged_models import ServableModelDataset
    from m2fdp.pipelines.training import package_model

    keys = {"training.rounds": 3, "dataset.scale": "unit_norm", "training.metrics": ["auc"]}
    experiment = Experiment.from_frame(visits(), PEOPLE, keys)
    trained = experiment.train()
    by_client = experiment.by_client(trained.state_dict)
    assert by_client["records"].sum() == len(experiment.held_out)
    packed = package_model(experiment, trained.state_dict, trained.metrics, experiment.summary())
    ServableModelDataset(path=str(tmp_path / "model")).save(packed)
    answers = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(
        visits()[["age", "chol", "sex"]]
    )
    inputs = encode(visits(), experiment.dataset.schema).inputs[:, 0, :, 0]
    tested = experiment.dataset.images[experiment.held_out][:, 0, :7, 0]
    places = [int(np.flatnonzero((inputs == row).all(axis=1))[0]) for row in tested]
    found = experiment.evaluate(trained.state_dict).predictions.tolist()
    classes = experiment.dataset.schema.classes
    assert answers["label"].to_numpy()[places].tolist() == [classes[label] for label in found]


def test_describe_proposes_persons_and_hints_at_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    visits(200, 12).to_csv("visits.csv", index=False)
    options = ["--label=ill", "--client=hospital", "--record=patient"]
    ran = CliRunner().invoke(main, ["data", "describe", "visits.csv", *options])
    assert ran.exit_code == 0, ran.output
    assert "12 persons, at most 2" in ran.output
    schema = yaml.safe_load((tmp_path / "conf" / "visits" / "schema.yml").read_text())
    assert schema["record"] == {"column": "patient", "rows": 20, "confirmed": False}
    assert "patient" not in schema["columns"]
    visits(200, 150).rename(columns={"patient": "patient_id"}).to_csv("many.csv", index=False)
    of_patients = {column.name: column for column in describe("many.csv", "ill").columns}
    assert of_patients["patient_id"].read.endswith(
        "; --record patient_id if it names persons, for some values repeat"
    )
    assert "--record" not in of_patients["age"].read
