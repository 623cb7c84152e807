"""beta: how fast the gradient of a record's loss can change, as declared or as bounded."""

from __future__ import annotations

from math import prod

from m2fdp.core.config import PIXELS, Config
from m2fdp.core.errors import InputError
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.registry import Model
from m2fdp.features.projection import LONGEST_SQUARED


def smoothness_of(config: Config, model: Model, shape: Shape) -> float | None:
    """beta as declared, or as bounded by the range of the features; None where it is estimated.

    Args:
        shape: (C, H, W) of what the model takes.

    Raises:
        InputError: it is to be bounded, and the loss has no known curvature.
    """
    declared = config.control.smoothness
    if declared == "estimated":
        return None
    if declared is not None:
        return float(declared)
    if model.curvature is None:
        raise InputError(
            "control.smoothness",
            None,
            f"has no bound for model.name: {model.name}, whose loss has no known curvature; "
            "declare a number, or use model.name: softmax or logistic",
        )
    return model.curvature * longest_squared(config, shape)


def longest_squared(config: Config, shape: Shape) -> float:
    """The largest squared norm that a record's features can have."""
    mapped = config.features.map != PIXELS or config.dataset.scale == "unit_norm"
    return LONGEST_SQUARED if mapped else float(prod(shape))  # pixels are in [0, 1]
