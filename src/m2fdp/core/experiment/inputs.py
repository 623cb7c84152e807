"""The records as models take them: pixels, pixels over the image's length, or features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.config import Config
from m2fdp.core.data.dataset import Dataset, features, of_unit_norm
from m2fdp.core.engine.arithmetic import set_exact_arithmetic
from m2fdp.features.mapping import Computing, map_records
from m2fdp.processes.workers import available_cores


def compute_inputs(
    config: Config, dataset: Dataset, on_chunk: Callable[[int, int], None]
) -> Dataset:
    """The data set with what models take for its images.

    Args:
        on_chunk: a function called with how many records are done, of how many, while features are
            computed.

    Raises:
        InputError: a feature map that can't be had for these images.
    """
    set_exact_arithmetic()
    if config.dataset.scale == "unit_norm":
        dataset = of_unit_norm(dataset)
    workers = available_cores(config.threads)
    return map_records(dataset, config.features, Computing(config.device, workers, on_chunk))


def records_of(inputs: Dataset, samples: np.ndarray, device: str) -> tuple[Tensor, Tensor]:
    """Inputs (n, C, H, W) and labels (n,) of some samples on a device."""
    return (
        torch.as_tensor(features(inputs.images[samples]), device=device),
        torch.as_tensor(inputs.labels[samples], device=device),
    )
