"""What MLflow keeps of a run, as its datasets are loaded and saved."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities import Metric, Run

from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.config import Config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.errors import InputError
from m2fdp.core.files import shown
from m2fdp.core.formatting import EPSILON_NAMES, promised_epsilon
from m2fdp.core.metrics import ACCURACY, EPSILON_NOMINAL, ROUNDS, SCORE
from m2fdp.pipelines.outbox import Outbox
from m2fdp.pipelines.pages import DESCRIPTION, card_of_parts, described
from m2fdp.pipelines.provenance import SOURCE
from m2fdp.reporting.cards import Card
from m2fdp.reporting.tables import promise_line
from m2fdp.zones.algorithm import ZoneAlgorithm

EPSILONS = (EPSILON_NOMINAL.name, *EPSILON_NAMES.values())
# Names the epsilons of zones that are infinite, for which MLflow has no number.
INFINITE_TAG = "zones_infinite"
# The same of what attacks have found.
ATTACK_INFINITE_TAG = "attack_infinite"
# Name, by the run's guarantee, the metrics of observers that are left out, because they are its
# epsilon_verified or epsilon_conditional.
AS_PROMISED_TAGS = {guarantee: f"epsilon_as_{guarantee}" for guarantee in EPSILON_NAMES}
MODEL = "servable_model"
_PARTS = ("experiment", "privacy_summary", "privacy_ledger", "round_metrics")  # of a card
_DIGEST_LENGTH = 12  # of a data set's digest; the tag split_sha256 has all of it


@dataclass(frozen=True)
class CatalogEntries:
    """What the catalog's configuration says about the datasets that a run makes."""

    files: Mapping[str, Path]  # dataset -> its file or folder, of those that have one
    artifacts: frozenset[str]  # datasets whose files MLflow keeps
    metrics: Mapping[str, str]  # dataset -> the name of the metric that it is in MLflow
    manifest_checks: Path  # the page of the split's checks

    @classmethod
    def of(cls, conf_catalog: Mapping[str, Any]) -> CatalogEntries:
        """Of a checked catalog (`m2fdp.pipelines.configuration.check_catalog`)."""
        described = {name: entry.get("dataset", entry) for name, entry in conf_catalog.items()}
        places = {name: e.get("filepath", e.get("path")) for name, e in described.items()}
        kinds = {name: entry["type"].rpartition(".")[2] for name, entry in conf_catalog.items()}
        metrics = [name for name in kinds if kinds[name] == "MlflowMetricDataset"]
        return cls(
            files={name: Path(place) for name, place in places.items() if place},
            artifacts=frozenset(n for n in kinds if kinds[n] == "MlflowArtifactDataset"),
            metrics={name: conf_catalog[name].get("key") or name for name in metrics},
            manifest_checks=Path(conf_catalog["manifest"]["validator"]["options"]["filepath"]),
        )

    @property
    def cell_folder(self) -> Path:
        """The run's own checkpoints and notes."""
        return self.files["checkpoints"].parent

    def printed(self, name: str) -> Path | None:
        """Where what is saved as PNG is as PDF, if the run wants it; None for other datasets."""
        file = self.files.get(name, Path())
        return file.with_suffix(".pdf") if file.suffix == ".png" else None

    def remove(self, name: str) -> None:
        """Remove the files that a dataset may have."""
        for file in (self.files.get(name), self.printed(name)):
            if file is not None:
                file.unlink(missing_ok=True)


class Recorder:
    """Sends MLflow what a run's datasets say about it."""

    def __init__(
        self,
        run: Run,
        outbox: Outbox,
        entries: CatalogEntries,
        config: Config,
        before: Run | None,
        trains: bool,
    ) -> None:
        self._run, self._outbox, self._entries, self._before = run, outbox, entries, before
        self._planned_rounds = config.training.rounds
        self._in_zones = isinstance(get_algorithm(config.algorithm), ZoneAlgorithm)
        self._will_train = trains
        self._digest = ""  # of the split, once it is recorded
        self._privacy_recorded = self._dataset_recorded = False
        self._noted: dict[str, Any] = {}  # datasets by name
        self._artifacts: set[str] = set()  # names of files
        self.folders: set[Path] = set()  # that files were saved to

    def saved(self, name: str, data: Any) -> None:
        """Of a dataset that the run has made."""
        entries, outbox = self._entries, self._outbox
        with outbox.together():
            if name in entries.files:
                self.folders.add(entries.files[name].parent)
            self._record_split(name)
            if name in entries.artifacts and entries.files[name].exists():
                self._artifacts.add(entries.files[name].name)
                files = (entries.files[name], entries.printed(name))
                outbox.put(files=[file for file in files if file and file.exists()])
            if name == MODEL and name in entries.files:
                outbox.put(models=[entries.files[name]])
            if name in entries.metrics:
                self._log_metrics({entries.metrics[name]: data})
            if name == "privacy_summary":
                # Metrics wait for the first accuracy, which a run that is killed may never have.
                outbox.put(tags={"epsilon": promise_line(data["guarantee"], data)})
            self._record_privacy(name, data)
            self._record_zones(name, data)
            self._record_attack(name, data)
            self._note(name, data)
            if name == "run_summary" and SCORE.name in data:
                self._log_metrics({SCORE.name: data[SCORE.name]})
            if name == "round_metrics":
                self._will_train = False
                trained = int(data["round"].iloc[-1])
                self._log_metrics({ROUNDS.name: trained})
                if trained < self._planned_rounds:
                    outbox.put(tags={"stopped_early": "true"})

    def loaded(self, name: str, data: Any) -> None:
        """Of a dataset that an earlier run, or this one, has made."""
        with self._outbox.together():
            self._record_split(name)
            self._record_privacy(name, data)
            self._note(name, data)

    def end(self, pipelines: Sequence[str]) -> None:
        """Of a run that has come to its end, so that its split has passed: describe it."""
        card: Card | None = self._noted.get("card")
        experiment, promised, ledger, metrics = map(self._noted.get, _PARTS)
        if card is None and experiment is not None and promised is not None:
            card = card_of_parts(experiment, promised, metrics, ledger, pipelines)
        if card is not None:
            info, files = self._run.info, sorted(self._artifacts)
            text = described(card, info.experiment_id, info.run_id, files)
            self._outbox.put(tags={DESCRIPTION: text})
        if self._digest:
            self._outbox.put(files=[self._entries.manifest_checks])

    def _note(self, name: str, data: Any) -> None:
        """Keep what a card may need, and tell of the data set once it is known how it is dealt."""
        if name in ("card", "dataset", "manifest", *_PARTS):
            self._noted[name] = data
        if self._dataset_recorded or not self._digest:
            return
        dataset, manifest = map(self._noted.get, ("dataset", "manifest"))
        if isinstance(dataset, Dataset) and manifest is not None:
            self._dataset_recorded = True
            self._outbox.put(inputs=[_dataset_input(dataset, manifest, self._digest)])

    def _log_metrics(self, metrics: dict[str, float], again: bool = False) -> None:
        """A run that goes on may have some already; before training the others wait for it."""
        logged = {} if self._before is None or again else self._before.data.metrics
        time_ms = int(time.time() * 1000)
        new = [Metric(k, value, time_ms, 0) for k, value in metrics.items() if k not in logged]
        send = self._outbox.leave if self._will_train else self._outbox.put
        send(new)

    def _log_finite(self, values: dict[str, float], tag: str) -> None:
        """Metrics that may be infinite; the tag names those that are."""
        infinite = sorted(key for key, value in values.items() if math.isinf(value))
        if infinite:
            self._outbox.put(tags={tag: " ".join(infinite)})
        self._log_metrics({key: v for key, v in values.items() if math.isfinite(v)})

    def _record_privacy(self, name: str, data: dict[str, Any]) -> None:
        """Once a run: what it promises, or what the run whose model it evaluates has promised."""
        if name != "privacy_summary" or self._privacy_recorded:
            return
        tags = {"privacy": data["guarantee"]}
        if data.get("records_in_clear", {}).get("validation"):
            tags["held_out"] = "in clear"
        if "deployed" in data:  # by real nodes, whose cloud wrote it
            tags["deployed"] = "rehearsal" if data["deployed"]["rehearsal"] else "true"
        if repeated := _as_promised(data):
            tags[AS_PROMISED_TAGS[data["guarantee"]]] = " ".join(repeated)
        self._outbox.put(tags=tags)
        self._log_metrics(_epsilons(data) | _elections(data))
        self._take_back(data)
        self._planned_rounds = data.get("rounds_planned", self._planned_rounds)
        self._privacy_recorded = True

    def _take_back(self, promised: Mapping[str, Any]) -> None:
        """What a run that goes on has been told to promise and does not any more: MLflow forgets no
        metric, but shows the latest value."""
        before = None if self._before is None else self._before.data
        for guarantee, name in EPSILON_NAMES.items():
            if before is None or guarantee == promised["guarantee"]:
                continue
            if name in before.metrics:
                self._log_metrics({name: math.nan}, again=True)
            if AS_PROMISED_TAGS[guarantee] in before.tags:
                self._outbox.put(tags={AS_PROMISED_TAGS[guarantee]: ""})

    def _record_zones(self, name: str, data: pd.DataFrame) -> None:
        """What observers of H's zones learn; of other algorithms the table alone is kept."""
        if name == "zones_table" and self._in_zones and not data.empty:
            self._log_finite(_of_zones(data), INFINITE_TAG)

    def _record_attack(self, name: str, data: Mapping[str, Any]) -> None:
        """What an attack has taken; the accuracy of what it attacked is the run's."""
        if name == "attack":
            metrics = data["metrics"].items()
            self._outbox.put(tags={ATTACK_INFINITE_TAG: ""})  # by which reports know an attack
            names = {key: key if key == ACCURACY.name else f"attack/{key}" for key, _ in metrics}
            self._log_finite({names[key]: float(v) for key, v in metrics}, ATTACK_INFINITE_TAG)

    def _record_split(self, name: str) -> None:
        """Once a run, when it has a manifest."""
        if name != "manifest" or self._digest:
            return
        manifest = self._entries.files[name]
        digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
        tags = {} if self._before is None else self._before.data.tags
        if tags.get("split_sha256", digest) != digest:
            remedy = "the run began with another split; leave resume out to start anew"
            raise InputError(shown(manifest), digest[:12], remedy)
        self._digest = digest
        self._outbox.put(tags={"split_sha256": digest})


def _dataset_input(dataset: Dataset, manifest: pd.DataFrame, digest: str) -> dict[str, str]:
    """A data set as it is dealt, as one that MLflow's run reads; it names no place."""
    counts = manifest["split"].value_counts()
    devices = manifest.loc[manifest["split"] == "train", "device"].nunique()
    channels, height, width = dataset.shape
    spec = {"dtype": str(dataset.images.dtype), "shape": [-1, height, width, channels]}
    schema = {
        "mlflow_tensorspec": {"features": json.dumps([{"type": "tensor", "tensor-spec": spec}])}
    }
    profile = {
        "num_rows": int(counts.get("train", 0)),
        "devices": int(devices),
        "classes": dataset.n_classes,
        **{f"{split}_records": int(count) for split, count in counts.items()},
    }
    return {
        "name": dataset.name,
        "digest": digest[:_DIGEST_LENGTH],
        "source_type": "code",
        "source": json.dumps({"tags": {"mlflow.source.name": SOURCE}}),
        "schema": json.dumps(schema),
        "profile": json.dumps(profile),
        "context": "training",
    }


def _epsilons(summary: dict[str, Any]) -> dict[str, float]:
    """The finite epsilons of a privacy summary by metric; there is none for an infinite one.

    Of observers only those who learn something else than the run's epsilon says: the same number
    once more for each of the others would fill the page of charts.
    """
    values = {name: summary[name] for name in EPSILONS if name in summary}
    repeated = _as_promised(summary)
    values |= {name: v for name, v in _of_observers(summary).items() if name not in repeated}
    return {name: float(value) for name, value in values.items() if math.isfinite(float(value))}


def _as_promised(summary: dict[str, Any]) -> list[str]:
    """The metrics of observers who learn what the run's epsilon says."""
    promised = promised_epsilon(summary)
    return [
        name
        for name, value in _of_observers(summary).items()
        if math.isfinite(value) and math.isclose(value, promised, rel_tol=1e-3)
    ]


def _of_observers(summary: dict[str, Any]) -> dict[str, float]:
    by_kind = summary.get("epsilon_by_observer", {})
    return {f"epsilon_observer/{kind}": float(value) for kind, value in by_kind.items()}


def _elections(summary: dict[str, Any]) -> dict[str, float]:
    """How unevenly elections have fallen, by metric."""
    counts = summary.get("elections", {})
    return {f"elections/{name}": float(count) for name, count in counts.items()}


def _of_zones(table: pd.DataFrame) -> dict[str, float]:
    """The columns that are the run's, and each observer's epsilons, by metric."""
    first = table.iloc[0]
    values = {name: first[name] for name in ("v", "epsilon_by_h", "epsilon_by_h_with_sums")}
    for observer, rows in table.groupby("observer"):
        who = str(observer).replace(" ", "_")
        values[f"epsilon/{who}"] = rows["epsilon"].max()
        values[f"least_epsilon/{who}"] = rows["least_epsilon"].min()
        values[f"noise_over_shift/{who}"] = rows["noise_over_shift"].min()
    return {f"zones/{name}": float(value) for name, value in values.items()}
