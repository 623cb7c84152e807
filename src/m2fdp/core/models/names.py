"""The models that there are, by name: what a configuration is checked by, without torch."""

from collections.abc import Callable
from typing import Any

from m2fdp.core.errors import InputError, among
from m2fdp.core.own_code import FORM, is_own, load
from m2fdp.core.rooms import Catalogue

KEY = "model.name"
# Functions from the block `model`, an image's shape and the number of classes to a `Model`.
MODELS: Catalogue[Callable[..., Any]] = Catalogue(
    "models",
    {
        **dict.fromkeys(("svm", "softmax", "logistic"), "m2fdp.core.models.registry:linear"),
        "dense": "m2fdp.core.models.registry:dense",
        "lenet": "m2fdp.core.models.registry:lenet",
        "cnn2": "m2fdp.core.models.registry:cnn2",
    },
)


def check_model_name(name: str) -> None:
    """Raises InputError unless the name is known or names an importable function."""
    if is_own(name):
        load(KEY, name)
    elif name not in MODELS:
        raise InputError(KEY, name, f"is none of {among(name, [*MODELS, FORM])}")
