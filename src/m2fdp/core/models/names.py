"""The models that there are, by name: what a configuration is checked by, without torch."""

from __future__ import annotations

from m2fdp.core.errors import InputError, among
from m2fdp.core.own_code import FORM, is_own, load

KEY = "model.name"
MODELS = ("svm", "softmax", "logistic", "dense", "lenet", "cnn2", "cnn12", "resnet")
# Those that a client and a server may share, with the places where each can be cut.
SPLIT_MODELS = {"resnet": 7, "cnn12": 3}


def check_model_name(name: str) -> None:
    """Raises InputError unless the name is known or names an importable function."""
    if is_own(name):
        load(KEY, name)
    elif name not in MODELS:
        raise InputError(KEY, name, f"is none of {among(name, [*MODELS, FORM])}")
