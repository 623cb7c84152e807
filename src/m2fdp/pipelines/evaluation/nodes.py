"""Nodes of the evaluation pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from m2fdp.algorithms import get_algorithm
from m2fdp.config import ModelConfig, TrainingConfig
from m2fdp.data.dataset import Dataset, features
from m2fdp.data.manifest import held_by_cloud
from m2fdp.models.registry import build_model
from m2fdp.reporting import figures
from m2fdp.simulation.evaluation import evaluate


def count_confusions(
    state_dict: dict[str, Tensor],
    dataset: Dataset,
    manifest: pd.DataFrame,
    model: ModelConfig,
    training: TrainingConfig,
) -> pd.DataFrame:
    """The confusion matrix: a row a true label, a column a predicted one."""
    built = build_model(model, dataset.shape, dataset.n_classes, seed=0)
    held_out = held_by_cloud(manifest, training.evaluate_on)
    labels = dataset.labels[held_out]
    result = evaluate(
        built,
        parameters_to_vector(state_dict.values()),
        torch.as_tensor(features(dataset.images[held_out])),
        torch.as_tensor(labels),
    )
    counts = np.zeros((dataset.n_classes, dataset.n_classes), dtype=np.int64)
    np.add.at(counts, (labels, result.predictions.numpy()), 1)
    classes = pd.RangeIndex(dataset.n_classes)
    return pd.DataFrame(counts, index=classes.rename("label"), columns=classes)


def draw_confusions(counts: pd.DataFrame) -> Figure:
    """The confusion matrix as a figure."""
    return figures.confusion_matrix(counts.to_numpy(), [str(label) for label in counts.index])


def draw_accuracy(round_metrics: pd.DataFrame, algorithm: str, seed: int) -> Figure:
    """Accuracy and epsilon over the rounds."""
    return figures.accuracy_curve(round_metrics, f"{get_algorithm(algorithm).title}, seed {seed}")


def summarise(
    round_metrics: pd.DataFrame,
    privacy_summary: dict[str, Any],
    algorithm: str,
    seed: int,
) -> dict[str, Any]:
    """The last evaluated round and the privacy it was bought with, ready for JSON."""
    last = round_metrics.iloc[-1]
    return {
        "algorithm": algorithm,
        "seed": seed,
        "rounds": int(last["round"]),
        **{name: float(last[name]) for name in ("accuracy", "loss", "energy_j", "delay_s")},
        "privacy": privacy_summary["guarantee"],
        **{
            name: privacy_summary[name]
            for name in ("epsilon_nominal", "epsilon_verified", "delta")
            if name in privacy_summary
        },
    }
