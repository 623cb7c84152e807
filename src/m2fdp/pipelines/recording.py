"""What MLflow keeps of a run, as its datasets are loaded and saved; no failing store ends a run."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Dataset as DatasetEntity
from mlflow.entities import DatasetInput, InputTag, Metric, Run, RunTag
from mlflow.exceptions import MlflowException

from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.config import Config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError
from m2fdp.core.files import shown
from m2fdp.core.formatting import EPSILON_NAMES, promised_epsilon
from m2fdp.core.metrics import ACCURACY, EPSILON_NOMINAL, ROUNDS, SCORE, of_last
from m2fdp.pipelines.configuration import CatalogEntries
from m2fdp.pipelines.logged_models import publish
from m2fdp.pipelines.mlflow_internals import MAX_METRICS_PER_BATCH, REFUSED
from m2fdp.pipelines.pages import DESCRIPTION, described
from m2fdp.pipelines.provenance import SOURCE
from m2fdp.pipelines.tracking import is_outage, why_no_answer
from m2fdp.reporting.cards import privacy_card, subject_of
from m2fdp.reporting.naming import command
from m2fdp.reporting.tables import promise_line
from m2fdp.zones.algorithm import ZoneAlgorithm

# These name the epsilons of zones, and what attacks have found, that are infinite: MLflow has no
# number for these.
INFINITE_TAG, ATTACK_INFINITE_TAG = "zones_infinite", "attack_infinite"
# Name, by the run's guarantee, the metrics of observers that are left out, because they are its
# epsilon_verified or epsilon_conditional.
AS_PROMISED_TAGS = {guarantee: f"epsilon_as_{guarantee}" for guarantee in EPSILON_NAMES}
MODEL = "servable_model"
_PARTS = ("experiment", "privacy_summary", "privacy_ledger", "round_metrics")  # of a card
_DIGEST_LENGTH = 12  # of a data set's digest; the tag split_sha256 has all of it

logger = logging.getLogger(__name__)


class Outbox:
    """What one MLflow run is to have, on its way to the store; all waits until the run begins.

    After a failure of the store everything waits for one more try, when the run ends: each try at
    a store that hangs takes half a minute.
    """

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        self._metrics: list[Metric] = []
        self._tags: dict[str, str] = {}
        self._files: list[Path] = []
        self._inputs: list[DatasetInput] = []
        self._models: list[Path] = []
        self._later: list[Metric] = []
        self._held, self._failure = False, ""

    def put(
        self,
        metrics: Iterable[Metric] = (),
        tags: Mapping[str, str] | None = None,
        files: Iterable[Path] = (),
        inputs: Iterable[DatasetInput] = (),
        models: Iterable[Path] = (),
    ) -> None:
        """Send metrics, tags, files, data sets that the run reads, and models' folders."""
        self._metrics += metrics
        self._tags |= tags or {}
        self._files += files
        self._inputs += inputs
        self._models += models
        if self.run_id and not self._held and not self._failure:
            self._send()

    def begin(self, run_id: str) -> None:
        """Send what has waited for the run."""
        self.run_id = run_id
        self.put()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send what is put inside the block at its end: each request takes ten milliseconds."""
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
        kinds = ("metrics", "tags", "files", "inputs", "models")
        unsent = {kind: getattr(self, f"_{kind}") for kind in kinds}
        summary = ", ".join(f"{len(left)} {kind}" for kind, left in unsent.items() if left)
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
        """MLflow looks for each data set before it adds it. Where another run adds it in between,
        as runs of a study do that begin together, it fails, and finds it the next time."""
        try:
            client.log_inputs(self.run_id, self._inputs)
        except MlflowException as error:
            if error.error_code != REFUSED:
                raise
            client.log_inputs(self.run_id, self._inputs)
        self._inputs.clear()


class Recorder:
    """Sends MLflow what a run's datasets say about it."""

    def __init__(
        self,
        outbox: Outbox,
        entries: CatalogEntries,
        config: Config,
        before: Run | None,
        trains: bool,
    ) -> None:
        self._outbox, self._entries = outbox, entries
        # What a run that goes on has been told already.
        self._told_metrics = {} if before is None else dict(before.data.metrics)
        self._told_tags = {} if before is None else before.data.tags
        self._planned_rounds = config.training.rounds
        self._in_zones = isinstance(get_algorithm(config.algorithm), ZoneAlgorithm)
        self._will_train = trains
        self._digest = ""  # of the split, once it is recorded
        self._dataset_recorded = False
        self._noted: dict[str, Any] = {}  # datasets by name
        self._artifacts: set[str] = set()  # names of files
        self.folders: set[Path] = set()  # that files were saved to

    def loaded(self, name: str, data: Any) -> None:
        """Of a dataset that an earlier run, or this one, has made."""
        with self._outbox.together():
            self._record(name, data)

    def saved(self, name: str, data: Any) -> None:
        """Of a dataset that the run has made."""
        entries, outbox, file = self._entries, self._outbox, self._entries.files.get(name)
        with outbox.together():
            self._record(name, data)
            if file is not None:
                self.folders.add(file.parent)
                if name in entries.artifacts and file.exists():
                    self._artifacts.add(file.name)
                    printed = entries.printed(name)
                    outbox.put(files=[file for file in (file, printed) if file and file.exists()])
                if name == MODEL:
                    outbox.put(models=[file])
            if name in entries.metrics:
                self._log_metrics({entries.metrics[name]: data})
            if name == "privacy_summary":
                # Metrics wait for the first accuracy, which a run that is killed may never have.
                outbox.put(tags={"epsilon": promise_line(data["guarantee"], data)})
            if name == "zones_table" and self._in_zones and not data.empty:
                self._log_finite(_of_zones(data), INFINITE_TAG)
            if name == "attack":
                outbox.put(tags={ATTACK_INFINITE_TAG: ""})  # by which reports know an attack
                # The accuracy of what is attacked is the run's.
                found = {
                    k if k == ACCURACY.name else f"attack/{k}": float(v)
                    for k, v in data["metrics"].items()
                }
                self._log_finite(found, ATTACK_INFINITE_TAG)
            if name == "run_summary" and SCORE.name in data:
                self._log_metrics({SCORE.name: data[SCORE.name]})
            if name == "round_metrics":
                self._will_train = False
                trained = int(data["round"].iloc[-1])
                self._log_metrics({ROUNDS.name: trained})
                if trained < self._planned_rounds:
                    outbox.put(tags={"stopped_early": "true"})

    def end(self, run: Run, pipelines: Sequence[str]) -> None:
        """Of a run that has come to its end, so that its split has passed: describe it.

        A run that was not asked to evaluate has made no card itself.
        """
        card = self._noted.get("card")
        experiment, promised, ledger, metrics = map(self._noted.get, _PARTS)
        if card is None and experiment is not None and promised is not None:
            reached = None
            if metrics is not None:
                last = metrics.iloc[-1]
                reached = {"rounds": int(last["round"]), **of_last(last)}
            repeat = command(experiment.config, pipelines)
            card = privacy_card(subject_of(experiment), promised, reached, ledger, repeat)
        if card is not None:
            files = sorted(self._artifacts)
            text = described(card, run.info.experiment_id, run.info.run_id, files)
            self._outbox.put(tags={DESCRIPTION: text})
        if self._digest:
            pages = [self._entries.manifest_checks, self._entries.table_checks]
            self._outbox.put(files=[page for page in pages if page.is_file()])

    def _record(self, name: str, data: Any) -> None:
        """Of split, data set and promise, whoever has made them, once a run; keep what a card may
        need."""
        if name == "manifest" and not self._digest:
            self._record_split(self._entries.files[name])
        if name == "privacy_summary" and name not in self._noted:
            self._record_privacy(data)
        if name in ("card", "dataset", "manifest", *_PARTS):
            self._noted[name] = data
        if self._dataset_recorded or not self._digest:
            return
        dataset, manifest = map(self._noted.get, ("dataset", "manifest"))
        if isinstance(dataset, Dataset) and manifest is not None:
            self._dataset_recorded = True
            self._outbox.put(inputs=[_dataset_input(dataset, manifest, self._digest)])

    def _log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Those that are not told yet; before training they wait for the accuracy."""
        time_ms, told = int(time.time() * 1000), self._told_metrics
        new = [Metric(k, value, time_ms, 0) for k, value in metrics.items() if k not in told]
        send = self._outbox.leave if self._will_train else self._outbox.put
        send(new)

    def _log_finite(self, values: Mapping[str, float], tag: str) -> None:
        """Metrics that may be infinite; the tag names those that are."""
        if infinite := sorted(key for key, value in values.items() if math.isinf(value)):
            self._outbox.put(tags={tag: " ".join(infinite)})
        self._log_metrics({key: v for key, v in values.items() if math.isfinite(v)})

    def _record_split(self, manifest: Path) -> None:
        digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
        if self._told_tags.get("split_sha256", digest) != digest:
            remedy = "the run began with another split; leave resume out to start anew"
            raise InputError(shown(manifest), digest[:12], remedy)
        self._digest = digest
        self._outbox.put(tags={"split_sha256": digest})

    def _record_privacy(self, data: Mapping[str, Any]) -> None:
        """What the run promises, or what the run whose model it evaluates has promised.

        What a run that goes on has promised and does not any more is taken back: MLflow forgets no
        metric, but shows the latest value.
        """
        tags = {"privacy": data["guarantee"]}
        if data.get("records_in_clear", {}).get("validation"):
            tags["held_out"] = "in clear"
        if "deployed" in data:  # by real nodes, whose cloud wrote it
            tags["deployed"] = "rehearsal" if data["deployed"]["rehearsal"] else "true"
        metrics, repeated = _promises(data)
        if repeated:
            tags[AS_PROMISED_TAGS[data["guarantee"]]] = " ".join(repeated)
        self._log_metrics(metrics)
        for guarantee, name in EPSILON_NAMES.items():
            if guarantee != data["guarantee"] and self._told_metrics.pop(name, None) is not None:
                self._log_metrics({name: math.nan})
            if guarantee != data["guarantee"] and AS_PROMISED_TAGS[guarantee] in self._told_tags:
                tags[AS_PROMISED_TAGS[guarantee]] = ""
        self._outbox.put(tags=tags)
        self._planned_rounds = data.get("rounds_planned", self._planned_rounds)


def _dataset_input(dataset: Dataset, manifest: pd.DataFrame, digest: str) -> DatasetInput:
    """A data set as it is dealt, as one that MLflow's run reads; it names no place."""
    counts = manifest["split"].value_counts()
    devices = manifest.loc[manifest["split"] == "train", "device"].nunique()
    channels, height, width = dataset.shape
    spec = {"dtype": str(dataset.images.dtype), "shape": [-1, height, width, channels]}
    features = json.dumps([{"type": "tensor", "tensor-spec": spec}])
    profile = {
        "num_rows": int(counts.get("train", 0)),
        "devices": int(devices),
        "classes": dataset.n_classes,
        **{f"{split}_records": int(count) for split, count in counts.items()},
    }
    entity = DatasetEntity(
        name=dataset.name,
        digest=digest[:_DIGEST_LENGTH],
        source_type="code",
        source=json.dumps({"tags": {"mlflow.source.name": SOURCE}}),
        schema=json.dumps({"mlflow_tensorspec": {"features": features}}),
        profile=json.dumps(profile),
    )
    return DatasetInput(entity, [InputTag("mlflow.data.context", "training")])


def _promises(summary: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """The finite epsilons of a privacy summary, and how unevenly elections have fallen, by metric.
    Left out, and named second, are observers with the run's own epsilon: the same number for each
    would fill the page of charts."""
    by_kind = summary.get("epsilon_by_observer", {}).items()
    observers = {f"epsilon_observer/{kind}": float(value) for kind, value in by_kind}
    promised = promised_epsilon(summary)
    repeated = [
        name
        for name, value in observers.items()
        if math.isfinite(value) and math.isclose(value, promised, rel_tol=1e-3)
    ]
    names = (EPSILON_NOMINAL.name, *EPSILON_NAMES.values())
    values = {name: float(summary[name]) for name in names if name in summary} | observers
    values |= {f"elections/{name}": float(n) for name, n in summary.get("elections", {}).items()}
    shown = {k: v for k, v in values.items() if math.isfinite(v) and k not in repeated}
    return shown, repeated


def _of_zones(table: pd.DataFrame) -> dict[str, float]:
    """The columns that are the run's, and each observer's epsilons, by metric."""
    values = dict(table.iloc[0][["v", "epsilon_by_h", "epsilon_by_h_with_sums"]])
    for observer, rows in table.groupby("observer"):
        who = str(observer).replace(" ", "_")
        values[f"epsilon/{who}"] = rows["epsilon"].max()
        values[f"least_epsilon/{who}"] = rows["least_epsilon"].min()
        values[f"noise_over_shift/{who}"] = rows["noise_over_shift"].min()
    return {f"zones/{name}": float(value) for name, value in values.items()}
