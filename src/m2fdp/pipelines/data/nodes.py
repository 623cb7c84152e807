"""Nodes of the data pipeline, and the experiment that those of the others share."""

from __future__ import annotations

from typing import Any

import pandas as pd

from m2fdp.config import Config, parse_config
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import label_counts
from m2fdp.experiments import Experiment
from m2fdp.reporting import figures
from m2fdp.reporting.pictures import Drawing


def configure(parameters: dict[str, Any]) -> Config:
    """The run's parameters as a configuration, once for all nodes."""
    return parse_config(parameters)


def load(config: Config) -> Dataset:
    """The configured data set."""
    return Experiment.from_config(config).dataset


def split(config: Config, dataset: Dataset) -> pd.DataFrame:
    """The manifest. What model and privacy ask of the data is checked before it is written."""
    return Experiment.from_config(config, dataset).manifest


def assemble(config: Config, dataset: Dataset, manifest: pd.DataFrame) -> Experiment:
    """The experiment on the manifest as it lies on the disk, if it is one for it."""
    experiment = Experiment.from_config(config, dataset, manifest)
    experiment.check()
    return experiment


def draw_label_distribution(manifest: pd.DataFrame) -> Drawing:
    """How many records of each label every device holds."""
    return Drawing.of(figures.label_distribution, label_counts(manifest))
