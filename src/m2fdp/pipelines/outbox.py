"""What a run tells MLflow while it computes; a store that fails ends no run."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag
from mlflow.exceptions import MlflowException

from m2fdp.pipelines.logged_models import publish
from m2fdp.pipelines.mlflow_internals import MAX_METRICS_PER_BATCH, REFUSED
from m2fdp.pipelines.tracking import is_outage, why_no_answer

logger = logging.getLogger(__name__)


class Outbox:
    """What one MLflow run is to have, on its way to the store: metrics, tags, files, data sets that
    it reads, and the folders of models that it makes.

    After a failure of the store everything waits for one more try, when the run ends: each try at
    a store that hangs takes half a minute.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._metrics: list[Metric] = []
        self._later: list[Metric] = []
        self._tags: dict[str, str] = {}
        self._files: list[Path] = []
        self._inputs: list[DatasetInput] = []
        self._models: list[Path] = []
        self._held = False
        self._failure = ""

    def put(
        self,
        metrics: Iterable[Metric] = (),
        tags: Mapping[str, str] | None = None,
        files: Iterable[Path] = (),
        inputs: Iterable[Mapping[str, str]] = (),
        models: Iterable[Path] = (),
    ) -> None:
        """Send these.

        Args:
            inputs: each the fields of `mlflow.entities.Dataset`, and its `context`.
            models: folders in MLflow's format.
        """
        self._metrics += metrics
        self._tags |= tags or {}
        self._files += files
        self._inputs += map(_dataset_input, inputs)
        self._models += models
        if not self._held and not self._failure:
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

    def leave(self, metrics: Iterable[Metric]) -> None:
        """Keep metrics for the next `take_up`: a request for each would be far slower."""
        self._later += metrics

    def take_up(self) -> None:
        """Send what was left: accuracy first, and what is known before training last.

        MLflow's page of a run lists metrics in the order in which they came.
        """
        left, self._later = self._later, []
        self.put(sorted(left, key=lambda metric: (metric.key != "accuracy", metric.step == 0)))

    def close(self) -> str | None:
        """Send what waits; returns how much the store did not take, and why, or None."""
        self._failure = ""
        self.take_up()
        unsent = {
            "metrics": self._metrics,
            "tags": self._tags,
            "files": self._files,
            "inputs": self._inputs,
            "models": self._models,
        }
        summary = ", ".join(f"{len(left)} {name}" for name, left in unsent.items() if left)
        return f"{summary} ({self._failure})" if summary else None

    def _send(self) -> None:
        client = MlflowClient()
        try:
            while self._metrics or self._tags:
                batch = self._metrics[:MAX_METRICS_PER_BATCH]
                tags = [RunTag(key, value) for key, value in self._tags.items()]
                client.log_batch(self.run_id, metrics=batch, tags=tags)
                del self._metrics[: len(batch)]
                self._tags.clear()
            while self._files:
                client.log_artifact(self.run_id, str(self._files[0]))
                del self._files[0]
            if self._inputs:
                self._log_inputs(client)
            while self._models:
                publish(client, self.run_id, self._models[0])
                del self._models[0]
        except Exception as error:
            if not is_outage(error):
                raise
            store = mlflow.get_tracking_uri()
            logger.warning("MLflow at %s fails; the run goes on and tells it at its end.", store)
            self._failure = why_no_answer(error)

    def _log_inputs(self, client: MlflowClient) -> None:
        """Tell the data sets that the run reads.

        MLflow looks for each before it adds it. Where another run has added it in between, which
        runs of a study that begin together do, it fails, and finds it the next time.
        """
        try:
            client.log_inputs(self.run_id, self._inputs)
        except MlflowException as error:
            if error.error_code != REFUSED:
                raise
            client.log_inputs(self.run_id, self._inputs)
        self._inputs.clear()


def _dataset_input(fields: Mapping[str, str]) -> DatasetInput:
    dataset = Dataset(**{name: value for name, value in fields.items() if name != "context"})
    return DatasetInput(dataset, [InputTag("mlflow.data.context", fields["context"])])
