"""A store that fails while a run computes: nothing is lost, and nothing is tried too often."""

from __future__ import annotations

import json
from contextlib import nullcontext

import mlflow
import pytest
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INVALID_PARAMETER_VALUE

from m2fdp.core.engine.training import RoundRecord
from m2fdp.pipelines import logged_models, outbox
from m2fdp.pipelines.outbox import Outbox
from m2fdp.pipelines.training.progress import tracked_progress


class Store:
    """In the place of MLflow's client: what it has received, and how often it was asked."""

    def __init__(self) -> None:
        self.metrics, self.tags, self.files, self.asked = [], {}, [], 0
        self.inputs = []
        self.error: Exception | None = None

    def log_batch(self, run_id, metrics=(), tags=()):
        self._ask()
        self.metrics += [(metric.key, metric.value, metric.step) for metric in metrics]
        self.tags |= {tag.key: tag.value for tag in tags}

    def log_artifact(self, run_id, path):
        self._ask()
        self.files.append(path)

    def log_inputs(self, run_id, datasets):
        self._ask()
        for each in datasets:
            (context,) = [tag.value for tag in each.tags]
            self.inputs.append((each.dataset.name, each.dataset.digest, context))

    def _ask(self):
        self.asked += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def store(monkeypatch):
    store = Store()
    monkeypatch.setattr(outbox, "MlflowClient", lambda: store)
    return store


def losses(*values):
    return [Metric("loss", value, 0, round_) for round_, value in enumerate(values, start=1)]


def dead() -> MlflowException:
    try:
        raise ConnectionRefusedError(111, "Connection refused")
    except OSError:
        try:
            raise MlflowException("API request failed with exception …")
        except MlflowException as error:
            return error


def test_what_a_failing_store_did_not_take_is_sent_when_it_is_back_in_order(
    store, tmp_path, monkeypatch
):
    monkeypatch.setattr(outbox, "_PAUSE_S", 0.0)
    box = Outbox("run", tmp_path / "unsent.json")
    box.put(losses(2.0))
    store.error = dead()
    box.put([Metric("loss", 1.5, 0, 2)], {"privacy": "verified"}, [tmp_path / "a.csv"])
    store.error = None
    box.put([Metric("loss", 1.0, 0, 3)])
    assert store.metrics == [("loss", 2.0, 1), ("loss", 1.5, 2), ("loss", 1.0, 3)]
    assert (store.tags, store.files) == ({"privacy": "verified"}, [str(tmp_path / "a.csv")])
    assert box.close() is None
    assert not (tmp_path / "unsent.json").exists()


def test_a_dead_store_is_asked_once_in_five_minutes_and_told_of_once(store, tmp_path, caplog):
    store.error = dead()
    box = Outbox("run", tmp_path / "unsent.json")
    for metric in losses(*range(100)):
        box.put([metric])
    assert store.asked == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"MLflow at {mlflow.get_tracking_uri()} fails; the run goes on and tells it later."
    ]


def test_what_is_left_lies_in_a_file_from_which_the_next_outbox_sends_it(store, tmp_path):
    store.error = dead()
    file = tmp_path / "cell" / "unsent.json"
    box = Outbox("run", file)
    box.put(losses(2.0, 1.5), {"privacy": "verified"}, [tmp_path / "a.csv"])
    said = box.close()
    assert said == "2 metrics, 1 tags, 1 files ([Errno 111] Connection refused)"
    assert json.loads(file.read_text())["run"] == "run"
    store.error = None
    next_box = Outbox("run", file)
    next_box.take_up()
    assert next_box.close() is None and not file.exists()
    assert store.metrics == [("loss", 2.0, 1), ("loss", 1.5, 2)]
    assert (store.tags, store.files) == ({"privacy": "verified"}, [str(tmp_path / "a.csv")])


def test_data_sets_and_models_wait_too(store, tmp_path, monkeypatch):
    published = []
    monkeypatch.setattr(
        logged_models, "publish", lambda client, run_id, folder: published.append((run_id, folder))
    )
    fields = {"name": "digits", "digest": "a63c", "source_type": "code", "source": "{}"}
    store.error = dead()
    file = tmp_path / "unsent.json"
    box = Outbox("run", file)
    box.put(inputs=[fields | {"context": "training"}], models=[tmp_path / "model"])
    box.put(losses(1.0))  # first, so that nothing else is tried
    assert box.close().startswith("1 metrics, 1 inputs, 1 models (")
    assert store.inputs == published == []
    store.error = None
    next_box = Outbox("run", file)
    next_box.take_up()
    assert next_box.close() is None
    assert store.inputs == [("digits", "a63c", "training")]
    assert published == [("run", tmp_path / "model")]


def test_what_an_older_version_left_is_sent(store, tmp_path):
    file = tmp_path / "unsent.json"
    unsent = {"run": "run", "metrics": [["loss", 1.0, 0, 1]], "tags": {}, "files": []}
    file.write_text(json.dumps(unsent))
    box = Outbox("run", file)
    box.take_up()
    assert box.close() is None and store.metrics == [("loss", 1.0, 1)]


def test_more_metrics_than_mlflow_takes_at_once_go_in_parts(store, tmp_path):
    Outbox("run", tmp_path / "unsent.json").put(losses(*range(2500)))
    assert len(store.metrics) == 2500 and store.asked == 3


def test_what_mlflow_refuses_is_no_outage(store, tmp_path):
    store.error = MlflowException("too long", error_code=INVALID_PARAMETER_VALUE)
    with pytest.raises(MlflowException, match="too long"):
        Outbox("run", tmp_path / "unsent.json").put(losses(1.0))


def test_training_goes_on_without_its_store(store, tmp_path, monkeypatch):
    monkeypatch.setattr("m2fdp.pipelines.training.progress._SECONDS_BETWEEN_WRITES", -1.0)
    monkeypatch.setattr(mlflow, "active_run", lambda: _Run)
    store.error = dead()
    file = tmp_path / "unsent.json"
    with tracked_progress(3, None, file) as listener:
        for round_ in range(1, 4):
            listener.on_round(round_, {}, 0.01)
            listener.on_evaluation(RoundRecord(round_, 0.5, 1.0, 0.0, 0.0, float("nan")))
    assert store.asked == 1
    unsent = [(key, step) for key, _, _, step in json.loads(file.read_text())["metrics"]]
    assert {("accuracy", round_) for round_ in (1, 2, 3)} < set(unsent)


class _Run:
    """As much of a run as training asks for."""

    class info:  # noqa: N801
        run_id = "run"


@pytest.mark.parametrize(("failures", "inputs"), [(1, [("digits", "a63c", "training")]), (2, [])])
def test_a_data_set_that_another_run_adds_meanwhile_is_found_the_next_time(
    store, tmp_path, monkeypatch, failures, inputs
):
    error = MlflowException("UNIQUE constraint failed: datasets.name", error_code=BAD_REQUEST)
    errors, tell = [error] * failures, store.log_inputs

    def log_inputs(run_id, datasets):
        if errors:
            raise errors.pop()
        tell(run_id, datasets)

    monkeypatch.setattr(store, "log_inputs", log_inputs)
    fields = {"name": "digits", "digest": "a63c", "source_type": "code", "source": "{}"}
    box = Outbox("run", tmp_path / "unsent.json")
    with nullcontext() if failures == 1 else pytest.raises(MlflowException, match="UNIQUE"):
        box.put(inputs=[fields | {"context": "training"}])
    assert store.inputs == inputs


def test_what_is_put_together_goes_in_one_request(store, tmp_path):
    box = Outbox("run", tmp_path / "unsent.json")
    with box.together():
        box.put(losses(2.0), tags={"privacy": "verified"})
        box.put(losses(1.0))
        assert store.asked == 0
    assert store.asked == 1
    assert store.metrics == [("loss", 2.0, 1), ("loss", 1.0, 1)]
    assert store.tags == {"privacy": "verified"}
    box.put(losses(0.5))
    assert store.asked == 2


def test_an_error_in_between_leaves_what_was_put_to_the_file(store, tmp_path):
    box = Outbox("run", tmp_path / "unsent.json")
    with pytest.raises(KeyError), box.together():
        box.put(tags={"privacy": "verified"})
        raise KeyError
    assert store.asked == 0
    assert box.close() is not None
    Outbox("run", tmp_path / "unsent.json").take_up()
    assert store.tags == {"privacy": "verified"}


def test_what_one_outbox_leaves_the_next_takes_up(store, tmp_path):
    file = tmp_path / "unsent.json"
    first, second = Outbox("run", file), Outbox("run", file)
    first.leave([Metric("epsilon_verified", 1.0, 0, 0)])
    first.leave([Metric("zones/v", 2.0, 0, 0)])
    first.put(losses(3.0))
    assert store.metrics == [("loss", 3.0, 1)]
    second.put([Metric("accuracy", 0.5, 0, 1)])
    second.take_up()
    sent = [("accuracy", 0.5, 1), ("epsilon_verified", 1.0, 0), ("zones/v", 2.0, 0)]
    assert store.metrics[1:] == sent
    assert not file.exists()
