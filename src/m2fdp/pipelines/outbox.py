"""What a run tells MLflow while it computes: kept, and sent later, where the store fails."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag
from mlflow.exceptions import MlflowException

from m2fdp.core.files import replacing
from m2fdp.pipelines.causes import is_outage, why_no_answer
from m2fdp.pipelines.mlflow_internals import MAX_METRICS_PER_BATCH, REFUSED

UNSENT = "unsent.json"
# A store that hangs takes half a minute of each try.
_PAUSE_S = 300.0

logger = logging.getLogger(__name__)


class Outbox:
    """What one MLflow run is to have, on its way to the store: metrics, tags, files, data sets that
    it reads, and the folders of models that it makes.

    A store that fails costs the run no more than a try every few minutes. What it did not take
    goes with the next try; what is left at the end is written to `file`, from which another
    outbox of the run takes it.
    """

    def __init__(self, run_id: str, file: Path) -> None:
        self._run_id, self._file = run_id, file
        self._metrics: list[Metric] = []
        self._tags: dict[str, str] = {}
        self._files: list[Path] = []
        self._inputs: list[dict[str, str]] = []
        self._models: list[Path] = []
        self._held = False
        self._next_try = 0.0
        self._failure = ""

    def put(
        self,
        metrics: Iterable[Metric] = (),
        tags: Mapping[str, str] | None = None,
        files: Iterable[Path] = (),
        inputs: Iterable[Mapping[str, str]] = (),
        models: Iterable[Path] = (),
    ) -> None:
        """Send these, and what is waiting, if the store is not known to fail.

        Args:
            inputs: each the fields of `mlflow.entities.Dataset`, and its `context`.
            models: folders in MLflow's format.
        """
        self._metrics += metrics
        self._tags |= tags or {}
        self._files += files
        self._inputs += map(dict, inputs)
        self._models += models
        if not self._held and time.monotonic() >= self._next_try:
            self._send()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send what is put inside the block at its end: a request takes the store ten
        milliseconds, however much it holds."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.put()

    def take_up(self) -> None:
        """Send now, with what an earlier outbox has left in the file."""
        self.take_in()
        self._next_try = 0.0
        self.put()

    def leave(self, metrics: Iterable[Metric]) -> None:
        """Write metrics to the file, for the next outbox that takes up what is there.

        MLflow's page of a run lists metrics in the order in which they came: what is known before
        training waits there for the first accuracy.
        """
        left = Outbox(self._run_id, self._file)
        left.take_in(metrics)
        left.close()

    def take_in(self, metrics: Iterable[Metric] = ()) -> None:
        """Keep what is in the file, which is then gone, and after it more metrics, to be sent."""
        if self._file.is_file():
            unsent = json.loads(self._file.read_text(encoding="utf-8"))
            self._metrics += [Metric(*fields) for fields in unsent["metrics"]]
            self._tags = unsent["tags"] | self._tags
            self._files[:0] = [Path(path) for path in unsent["files"]]
            self._inputs[:0] = unsent.get("inputs", [])  # a file of before 0.5.0 has none
            self._models[:0] = [Path(path) for path in unsent.get("models", [])]
            self._file.unlink()
        self._metrics += metrics

    def close(self) -> str | None:
        """Write what is left to the file; returns how much that is, and why, or None."""
        waiting = (self._metrics, self._tags, self._files, self._inputs, self._models)
        if not any(waiting):
            return None
        unsent = {
            "run": self._run_id,
            "metrics": [[m.key, m.value, m.timestamp, m.step] for m in self._metrics],
            "tags": self._tags,
            "files": [str(path) for path in self._files],
            "inputs": self._inputs,
            "models": [str(path) for path in self._models],
        }
        with replacing(self._file) as unfinished:
            unfinished.write_text(json.dumps(unsent), encoding="utf-8")
        counts = {name: len(unsent[name]) for name in unsent if name != "run"}
        summary = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"{summary} ({self._failure})"

    def _send(self) -> None:
        client = MlflowClient()
        try:
            while self._metrics or self._tags:
                batch = self._metrics[:MAX_METRICS_PER_BATCH]
                tags = [RunTag(key, value) for key, value in self._tags.items()]
                client.log_batch(self._run_id, metrics=batch, tags=tags)
                del self._metrics[: len(batch)]
                self._tags.clear()
            while self._files:
                client.log_artifact(self._run_id, str(self._files[0]))
                del self._files[0]
            if self._inputs:
                _log_inputs(client, self._run_id, self._inputs)
                self._inputs.clear()
            while self._models:
                # Here because it needs torch, and a run that is refused does not.
                from m2fdp.pipelines.logged_models import publish

                publish(client, self._run_id, self._models[0])
                del self._models[0]
        except Exception as error:
            if not is_outage(error):
                raise
            if not self._failure:
                logger.warning(
                    "MLflow at %s fails; the run goes on and tells it later.",
                    mlflow.get_tracking_uri(),
                )
            self._failure = why_no_answer(error)
            self._next_try = time.monotonic() + _PAUSE_S


def _log_inputs(client: MlflowClient, run_id: str, inputs: Sequence[Mapping[str, str]]) -> None:
    """Tell the data sets that a run reads.

    MLflow looks for each before it adds it. Where another run has added it in between, which runs
    of a study that begin together do, it fails, and finds it the next time.
    """
    datasets = [_dataset_input(each) for each in inputs]
    try:
        client.log_inputs(run_id, datasets)
    except MlflowException as error:
        if error.error_code != REFUSED:
            raise
        client.log_inputs(run_id, datasets)


def _dataset_input(fields: Mapping[str, str]) -> DatasetInput:
    dataset = Dataset(**{name: value for name, value in fields.items() if name != "context"})
    return DatasetInput(dataset, [InputTag("mlflow.data.context", fields["context"])])
