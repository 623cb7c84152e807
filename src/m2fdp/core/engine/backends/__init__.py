"""Backends: how the gradients of a local step are computed.

All answer one question: the weighted sum, over the records that a learner uses, of the loss
gradients at the learner's model, each clipped to a norm if asked. They agree to rounding; the
tests hold every one against the plain reference.
"""

from __future__ import annotations

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
    """The backend of a name, in the form that fits the model.

    `auto` is what measured best (benchmarks/): linear models are stacked everywhere; others go
    one learner after the other on a CPU, where stacked convolutions lose, and stacked on a GPU.

    Args:
        name: `auto`, `reference`, `sequential` or `stacked`.
        minibatch_law: mean and variance, float64 (n,), of the records that each learner uses.
    """
    if name == "reference":
        return ReferenceBackend(model, clip_factor)
    if name == "sequential" or (name == "auto" and not model.linear and device.type == "cpu"):
        return SequentialBackend(model, clip_factor)
    if model.linear:
        return StackedLinearBackend(model, padded_width(*minibatch_law), clip_factor)
    return StackedBackend(model, clip_factor)
