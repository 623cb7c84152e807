"""Nodes of the data pipeline."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from m2fdp.config import (
    ModelConfig,
    PartitionConfig,
    PrivacyConfig,
    TopologyConfig,
    TrainingConfig,
)
from m2fdp.data.dataset import Dataset
from m2fdp.data.manifest import check_manifest, label_counts, make_manifest, shards_of
from m2fdp.experiments.checks import check_data
from m2fdp.reporting import figures
from m2fdp.topology.builders import build_tree


def split(
    dataset: Dataset,
    partition: PartitionConfig,
    topology: TopologyConfig,
    model: ModelConfig,
    training: TrainingConfig,
    privacy: PrivacyConfig,
    seed: int,
) -> pd.DataFrame:
    """The manifest: every record that is used, and the device that holds it.

    The tree says only which devices share an edge server; trust plays no part. What model and
    privacy ask of the data is checked here, before the first output is written.
    """
    tree = build_tree(topology)
    manifest = make_manifest(dataset, partition, tree.ancestors[tree.depth - 1], seed)
    sizes = shards_of(manifest).sizes
    check_data(dataset.shape, dataset.n_classes, sizes, model, training, privacy)
    return manifest


def check_split(
    manifest: pd.DataFrame,
    dataset: Dataset,
    topology: TopologyConfig,
    model: ModelConfig,
    training: TrainingConfig,
    privacy: PrivacyConfig,
) -> pd.DataFrame:
    """The manifest as it lies on the disk, if it is one for this configuration."""
    check_manifest(manifest, dataset, build_tree(topology).n_devices)
    sizes = shards_of(manifest).sizes
    check_data(dataset.shape, dataset.n_classes, sizes, model, training, privacy)
    return manifest


def draw_label_distribution(manifest: pd.DataFrame) -> Figure:
    """How many records of each label every device holds."""
    return figures.label_distribution(label_counts(manifest))
