"""What a run tells MLflow while it computes: kept, and sent later, where the store fails."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

from m2fdp.files import replacing
from m2fdp.pipelines.causes import is_outage, why_no_answer
from m2fdp.pipelines.mlflow_internals import MAX_METRICS_PER_BATCH

UNSENT = "unsent.json"
# A store that hangs takes half a minute of each try.
_PAUSE_S = 300.0

logger = logging.getLogger(__name__)


class Outbox:
    """Metrics, tags and files of one MLflow run on their way to the store.

    A store that fails costs the run no more than a try every few minutes. What it did not take
    goes with the next try; what is left at the end is written to `file`, from which another
    outbox of the run takes it.
    """

    def __init__(self, run_id: str, file: Path) -> None:
        self._run_id, self._file = run_id, file
        self._metrics: list[Metric] = []
        self._tags: dict[str, str] = {}
        self._files: list[Path] = []
        self._next_try = 0.0
        self._failure = ""

    def put(
        self,
        metrics: Iterable[Metric] = (),
        tags: Mapping[str, str] | None = None,
        files: Iterable[Path] = (),
    ) -> None:
        """Send these, and what is waiting, if the store is not known to fail."""
        self._metrics += metrics
        self._tags |= tags or {}
        self._files += files
        if time.monotonic() >= self._next_try:
            self._send()

    def take_up(self) -> None:
        """Send now, first of all what an earlier outbox has left in the file."""
        if self._file.is_file():
            left = json.loads(self._file.read_text())
            self._metrics[:0] = [Metric(*fields) for fields in left["metrics"]]
            self._tags = left["tags"] | self._tags
            self._files[:0] = [Path(path) for path in left["files"]]
            self._file.unlink()
        self._next_try = 0.0
        self.put()

    def close(self) -> str | None:
        """Write what is left to the file; returns how much that is, and why, or None."""
        if not (self._metrics or self._tags or self._files):
            return None
        left = {
            "run": self._run_id,
            "metrics": [[m.key, m.value, m.timestamp, m.step] for m in self._metrics],
            "tags": self._tags,
            "files": [str(path) for path in self._files],
        }
        with replacing(self._file) as unfinished:
            unfinished.write_text(json.dumps(left))
        counts = {name: len(left[name]) for name in ("metrics", "tags", "files")}
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
