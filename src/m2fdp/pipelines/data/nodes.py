"""Nodes of the data pipeline, and the experiment that those of the others share."""

from __future__ import annotations

import pandas as pd

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import label_counts
from m2fdp.data.sources import load_dataset
from m2fdp.experiments import Experiment
from m2fdp.experiments.parts import Parts
from m2fdp.reporting import figures
from m2fdp.reporting.pictures import Drawing


def load(config: Config) -> Dataset:
    """The configured data set."""
    return load_dataset(config.dataset)


def split(config: Config, plan: Plan, dataset: Dataset) -> pd.DataFrame:
    """The manifest. What model and privacy ask of the data is checked before it is written."""
    return Parts(config, dataset, given_plan=plan).manifest


def assemble(config: Config, plan: Plan, dataset: Dataset, manifest: pd.DataFrame) -> Experiment:
    """The experiment on the manifest as it lies on the disk, if it is one for it."""
    experiment = Experiment(config, dataset, manifest, plan)
    experiment.check()
    return experiment


def draw_label_distribution(manifest: pd.DataFrame) -> Drawing:
    """How many records of each label every device holds."""
    return Drawing.of(figures.label_distribution, label_counts(manifest))
