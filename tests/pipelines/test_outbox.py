"""A store that fails while a run computes: the run goes on, and tells it at its end."""

from contextlib import nullcontext

import mlflow
import pytest
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INVALID_PARAMETER_VALUE

from m2fdp.core.engine.training import RoundRecord
from m2fdp.pipelines import recording
from m2fdp.pipelines.recording import Outbox
from m2fdp.pipelines.training import tracked_progress

DIGITS = DatasetInput(
    Dataset("digits", "a63c", "code", "{}"), [InputTag("mlflow.data.context", "training")]
)


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
    monkeypatch.setattr(recording, "MlflowClient", lambda: store)
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


def test_after_a_failure_the_store_is_told_everything_at_the_end_in_order(
    store, tmp_path, monkeypatch, caplog
):
    published = []
    monkeypatch.setattr(recording, "publish", lambda client, *what: published.append(what))
    box = Outbox("run")
    box.put(losses(2.0))
    store.error, store.asked = dead(), 0
    for round_ in range(2, 100):
        box.put([Metric("loss", 1.5, 0, round_)], {"privacy": "verified"})
    box.put(files=[tmp_path / "a.csv"], inputs=[DIGITS], models=[tmp_path / "model"])
    assert store.asked == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"MLflow at {mlflow.get_tracking_uri()} fails; the run goes on and tells it at its end."
    ]
    left = "98 metrics, 1 tags, 1 files, 1 inputs, 1 models ([Errno 111] Connection refused)"
    assert box.close() == left
    store.error = None
    assert box.close() is None
    assert store.metrics == [("loss", 2.0, 1), *(("loss", 1.5, n) for n in range(2, 100))]
    assert (store.tags, store.files) == ({"privacy": "verified"}, [str(tmp_path / "a.csv")])
    assert store.inputs == [("digits", "a63c", "training")]
    assert published == [("run", tmp_path / "model")]


def test_more_metrics_than_mlflow_takes_at_once_go_in_parts(store):
    Outbox("run").put(losses(*range(2500)))
    assert len(store.metrics) == 2500 and store.asked == 3


def test_what_mlflow_refuses_is_no_outage(store):
    store.error = MlflowException("too long", error_code=INVALID_PARAMETER_VALUE)
    with pytest.raises(MlflowException, match="too long"):
        Outbox("run").put(losses(1.0))


def test_training_goes_on_without_its_store(store, monkeypatch):
    monkeypatch.setattr("m2fdp.pipelines.training._SECONDS_BETWEEN_WRITES", -1.0)
    store.error, box = dead(), Outbox("run")
    with tracked_progress(3, None, box) as listener:
        for round_ in range(1, 4):
            listener.on_round(round_, {}, 0.01)
            listener.on_evaluation(RoundRecord(round_, 0.5, 1.0, 0.0, 0.0, float("nan")))
    assert store.asked == 1
    store.error = None
    assert box.close() is None
    unsent = [(key, step) for key, _, step in store.metrics]
    assert {("accuracy", round_) for round_ in (1, 2, 3)} < set(unsent)


@pytest.mark.parametrize(("failures", "inputs"), [(1, [("digits", "a63c", "training")]), (2, [])])
def test_a_data_set_that_another_run_adds_meanwhile_is_found_the_next_time(
    store, monkeypatch, failures, inputs
):
    error = MlflowException("UNIQUE constraint failed: datasets.name", error_code=BAD_REQUEST)
    errors, tell = [error] * failures, store.log_inputs

    def log_inputs(run_id, datasets):
        if errors:
            raise errors.pop()
        tell(run_id, datasets)

    monkeypatch.setattr(store, "log_inputs", log_inputs)
    box = Outbox("run")
    with nullcontext() if failures == 1 else pytest.raises(MlflowException, match="UNIQUE"):
        box.put(inputs=[DIGITS])
    assert store.inputs == inputs


def test_what_is_put_together_goes_in_one_request(store):
    box = Outbox("run")
    with box.together():
        box.put(losses(2.0), tags={"privacy": "verified"})
        box.put(losses(1.0))
        assert store.asked == 0
    assert store.asked == 1
    assert store.metrics == [("loss", 2.0, 1), ("loss", 1.0, 1)]
    assert store.tags == {"privacy": "verified"}
    box.put(losses(0.5))
    assert store.asked == 2
    with pytest.raises(KeyError), box.together():  # what an error leaves waits for the end
        box.put(tags={"held_out": "in clear"})
        raise KeyError
    assert store.asked == 2
    assert box.close() is None
    assert store.tags == {"privacy": "verified", "held_out": "in clear"}


def test_what_is_left_comes_after_what_is_put_first(store):
    box = Outbox("run")
    box.leave([Metric("epsilon_verified", 1.0, 0, 0)])
    box.put(losses(3.0))
    assert store.metrics == [("loss", 3.0, 1)]
    box.leave([Metric("wall_s", 2.0, 0, 1), Metric("accuracy", 0.5, 0, 1)])
    box.take_up()
    assert [name for name, *_ in store.metrics[1:]] == ["accuracy", "wall_s", "epsilon_verified"]
