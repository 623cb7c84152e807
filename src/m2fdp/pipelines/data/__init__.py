"""Load a data set and deal its records to the devices: who holds which record."""

import logging
from dataclasses import replace
from functools import partial

import pandas as pd
from kedro.pipeline import Pipeline

from m2fdp.checkpoints.verdict import OTHER_RECORDS, Verdict
from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.sources import load_dataset
from m2fdp.experiment import Experiment
from m2fdp.pipelines.datasets import node
from m2fdp.progress import so_far, telling
from m2fdp.reporting import figures
from m2fdp.reporting.pictures import Drawing
from m2fdp.tables.expected import Rows, expected
from m2fdp.tables.table import strata_names

_ASSEMBLED = ["config", "plan", "dataset", "manifest", "known"]

logger = logging.getLogger(__name__)


def look(config: Config) -> Rows:
    """Rows of a user's own table, which the catalog has checked by the schema."""
    return expected(config.dataset)


def load(config: Config) -> Dataset:
    """The configured data set."""
    reading = f"reading and checking {config.dataset.name}"
    with telling(logger.info, partial(so_far, reading)):
        return load_dataset(config.dataset, seed=config.seed)


def split(config: Config, plan: Plan, dataset: Dataset) -> pd.DataFrame:
    """The manifest. What model and privacy ask of the data is checked before it is written."""
    return Experiment(config, dataset, given_plan=plan).manifest


def assemble(
    config: Config, plan: Plan, dataset: Dataset, manifest: pd.DataFrame, known: Verdict | None
) -> Experiment:
    """The experiment on the manifest as it lies on the disk, if it is one for it."""
    conditions = () if known is None else known.rests_on
    experiment = Experiment(config, dataset, manifest, plan, conditions)
    experiment.check()
    if known is not None and known.records not in ("", experiment.trained_on):
        experiment = replace(experiment, known=(*conditions, OTHER_RECORDS))
    return experiment


def label_counts(manifest: pd.DataFrame) -> pd.DataFrame:
    """Training records of each device (index, in the manifest's order) by label (one column each).

    A simulation diagnostic: in a deployment these un-noised counts would be a release.
    """
    train = manifest[manifest["split"] == "train"]
    labels = pd.RangeIndex(manifest["label"].max() + 1, name="label")
    table = pd.crosstab(train["device"], train["label"]).reindex(columns=labels, fill_value=0)
    return table.loc[train["device"].unique()]


def draw_label_distribution(manifest: pd.DataFrame, dataset: Dataset) -> Drawing:
    """How many records of each label every device holds."""
    counts = label_counts(manifest)
    names = strata_names(dataset)
    return Drawing.of(figures.label_distribution, counts.rename(columns=dict(enumerate(names))))


def create_pipeline() -> Pipeline:
    """Configuration and plan to data set, manifest and label distribution."""
    return from_disk() + Pipeline(
        [
            node(split, ["config", "plan", "dataset"], "manifest"),
            node(draw_label_distribution, ["manifest", "dataset"], "label_distribution"),
        ]
    )


def from_disk() -> Pipeline:
    """The same and a manifest, which may be the user's own, to the experiment."""
    return Pipeline(
        [
            # By its name Kedro runs it before the other, so a table that is refused has its page.
            node(look, "config", "table_rows", "check_table"),
            node(load, "config", "dataset", "load_dataset"),
            node(assemble, _ASSEMBLED, "experiment"),
        ]
    )
