"""What models there are, and what images must be for them; known without torch."""

from collections.abc import Callable
from typing import Any

from m2fdp.core.errors import InputError, among
from m2fdp.core.own_code import FORM, is_own, load
from m2fdp.core.rooms import Catalogue

KEY = "model.name"
Shape = tuple[int, int, int]  # of one image: (C, H, W)
# Functions from the block `model`, an image's shape and the number of classes to a `Model`.
MODELS: Catalogue[Callable[..., Any]] = Catalogue(
    "models", dict.fromkeys(("svm", "softmax", "logistic"), "m2fdp.core.models.registry:linear")
)
# Functions from a `Model` to the one with a loss that is known by name.
LOSSES: Catalogue[Callable[[Any], Any]] = Catalogue("losses", {})


def check_model_name(name: str) -> None:
    """Raises InputError unless the name is known or names an importable function."""
    if is_own(name):
        load(KEY, name)
    elif name not in MODELS:
        raise InputError(KEY, name, f"is none of {among(name, [*MODELS, FORM])}")


def check_loss_name(name: str | None) -> None:
    """Raises InputError unless the name is known or names an importable function."""
    if name is not None and is_own(name):
        load("model.loss", name)
    elif name is not None and name not in LOSSES:
        raise InputError("model.loss", name, f"is none of {among(name, [*LOSSES, FORM])}")


def check_pixels(name: str, shape: Shape, fewest: int, need: str) -> None:
    """Refuse images with too small a side for a model; `need` begins the sentence that says why."""
    _, height, width = shape
    if min(height, width) < fewest:
        size = f"{fewest} x {fewest} pixels; these have {height} x {width}"
        raise InputError(KEY, name, f"{need} at least {size}")
