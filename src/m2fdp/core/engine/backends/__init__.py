"""Backends: the weighed sum, over a learner's records, of the loss's gradients at its model, each
clipped to a norm if asked. All agree to rounding; tests compare each with the plain reference."""

import numpy as np
import torch

from m2fdp.core.engine.backends.base import Backend
from m2fdp.core.engine.backends.linear import StackedLinearBackend, padded_width
from m2fdp.core.engine.backends.reference import ReferenceBackend
from m2fdp.core.engine.backends.sequential import SequentialBackend
from m2fdp.core.engine.backends.vectorised import StackedBackend
from m2fdp.core.engine.clipping import ClipFactor, flat_clip
from m2fdp.core.models.registry import Model

__all__ = ["Backend", "build_backend"]


def build_backend(
    model: Model,
    name: str,
    minibatch_law: tuple[np.ndarray, np.ndarray],
    device: torch.device,
    clip_factor: ClipFactor = flat_clip,
) -> Backend:
    """The backend of a name, `auto`, `reference`, `sequential` or `stacked`.

    `auto` measured best (benchmarks/): linear models and those on a GPU are stacked; others go one
    learner after the other.

    Args:
        minibatch_law: mean and variance, float64 (n,), of the number of each learner's records.
    """
    if name == "reference":
        return ReferenceBackend(model, clip_factor)
    if name == "sequential" or (name == "auto" and not model.linear and device.type == "cpu"):
        return SequentialBackend(model, clip_factor)
    if model.linear:
        return StackedLinearBackend(model, padded_width(*minibatch_law), clip_factor)
    return StackedBackend(model, clip_factor)
