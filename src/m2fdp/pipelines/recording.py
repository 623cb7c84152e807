"""What MLflow keeps of a run, as its datasets are loaded and saved."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities import Metric, Run

from m2fdp.errors import InputError
from m2fdp.files import shown
from m2fdp.pipelines.outbox import Outbox

EPSILONS = ("epsilon_nominal", "epsilon_verified")
# Names the epsilons of zones that are infinite, for which MLflow has no number.
INFINITE_TAG = "zones_infinite"


@dataclass(frozen=True)
class CatalogEntries:
    """What the catalog's configuration says about the datasets that a run makes.

    Attributes:
        files: dataset -> its file, of those that are one.
        artifacts: datasets whose files MLflow keeps.
        metrics: dataset -> the name of the metric that it is in MLflow.
        manifest, manifest_checks: the split, and the page of its checks.
        cell_folder: of the run's own checkpoints and notes.
    """

    files: Mapping[str, Path]
    artifacts: frozenset[str]
    metrics: Mapping[str, str]
    manifest: Path
    manifest_checks: Path
    cell_folder: Path

    @classmethod
    def of(cls, conf_catalog: Mapping[str, Any], project: Path) -> CatalogEntries:
        """Of a checked catalog (`m2fdp.pipelines.configuration.check_catalog`)."""
        described = {name: entry.get("dataset", entry) for name, entry in conf_catalog.items()}
        manifest = conf_catalog["manifest"]
        return cls(
            files={
                name: Path(entry["filepath"])
                for name, entry in described.items()
                if "filepath" in entry
            },
            artifacts=frozenset(
                name
                for name, entry in conf_catalog.items()
                if entry["type"].endswith("MlflowArtifactDataset")
            ),
            metrics={
                name: entry["key"]
                for name, entry in conf_catalog.items()
                if entry["type"].endswith("MlflowMetricDataset")
            },
            manifest=Path(manifest["dataset"]["filepath"]),
            manifest_checks=Path(manifest["validator"]["options"]["filepath"]),
            cell_folder=project / Path(conf_catalog["checkpoints"]["path"]).parent,
        )


class Recorder:
    """Sends MLflow what a run's datasets say about it.

    Args:
        outbox: of the run.
        entries: of the catalog.
        rounds: that the configuration asks for.
        before: the run as MLflow knows it, if it goes on.
    """

    def __init__(
        self, outbox: Outbox, entries: CatalogEntries, rounds: int, before: Run | None
    ) -> None:
        self._outbox, self._entries, self._before = outbox, entries, before
        self._planned_rounds = rounds
        self._split_recorded = self._privacy_recorded = False
        self.folders: set[Path] = set()  # that files were saved to

    def saved(self, name: str, data: Any) -> None:
        """Of a dataset that the run has made."""
        entries = self._entries
        if name in entries.files:
            self.folders.add(entries.files[name].parent)
        self._record_split(name)
        if name in entries.artifacts and entries.files[name].exists():
            self._outbox.put(files=[entries.files[name]])
        if name in entries.metrics:
            self._log_metrics({entries.metrics[name]: data})
        self._record_privacy(name, data)
        self._record_zones(name, data)
        if name == "round_metrics":
            trained = int(data["round"].iloc[-1])
            self._log_metrics({"rounds_trained": trained})
            if trained < self._planned_rounds:
                self._outbox.put(tags={"stopped_early": "true"})

    def loaded(self, name: str, data: Any) -> None:
        """Of a dataset that an earlier run, or this one, has made."""
        self._record_split(name)
        self._record_privacy(name, data)

    def _log_metrics(self, metrics: dict[str, float]) -> None:
        """A run that goes on may have some already."""
        known = {} if self._before is None else self._before.data.metrics
        now = int(time.time() * 1000)
        new = metrics.keys() - known.keys()
        self._outbox.put([Metric(name, metrics[name], now, 0) for name in new])

    def _record_privacy(self, name: str, data: dict[str, Any]) -> None:
        """Once a run: what it promises, or what the run whose model it evaluates has promised."""
        if name != "privacy_summary" or self._privacy_recorded:
            return
        tags = {"privacy": data["guarantee"]}
        if data.get("records_in_clear", {}).get("validation"):
            tags["held_out"] = "in clear"
        self._outbox.put(tags=tags)
        self._log_metrics(_epsilons(data) | _elections(data))
        self._planned_rounds = data.get("rounds_planned", self._planned_rounds)
        self._privacy_recorded = True

    def _record_zones(self, name: str, data: pd.DataFrame) -> None:
        """What observers of H's zones learn, where the run has any."""
        if name != "zones_table" or data.empty:
            return
        values = _of_zones(data)
        infinite = sorted(key for key, value in values.items() if math.isinf(value))
        if infinite:
            self._outbox.put(tags={INFINITE_TAG: " ".join(infinite)})
        self._log_metrics({key: v for key, v in values.items() if math.isfinite(v)})

    def _record_split(self, name: str) -> None:
        """Once a run, when the catalog has validated the manifest that the run uses."""
        if name != "manifest" or self._split_recorded:
            return
        manifest = self._entries.manifest
        digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
        if self._before is not None:
            before = self._before.data.tags.get("split_sha256", digest)
            if digest != before:
                remedy = "the run began with another split; leave resume out to start anew"
                raise InputError(shown(manifest), digest[:12], remedy)
        self._outbox.put(tags={"split_sha256": digest}, files=[self._entries.manifest_checks])
        self._split_recorded = True


def _epsilons(summary: dict[str, Any]) -> dict[str, float]:
    """The finite epsilons of a privacy summary by metric; there is none for an infinite one."""
    values = {name: summary[name] for name in EPSILONS if name in summary}
    for kind, value in summary.get("epsilon_by_observer", {}).items():
        values[f"epsilon_observer/{kind}"] = value
    return {name: float(value) for name, value in values.items() if math.isfinite(float(value))}


def _elections(summary: dict[str, Any]) -> dict[str, float]:
    """How unevenly elections have fallen, by metric."""
    return {f"elections/{name}": float(most) for name, most in summary.get("elections", {}).items()}


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
