"""What lies in a cell is of one configuration: that of its model, where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline

from m2fdp.core.config import Config, completed, essentials
from m2fdp.core.engine.checkpoints import differences
from m2fdp.core.errors import InputError
from m2fdp.pipelines import privacy

MODEL = "model.pt"
# A model and its promise stay the same whatever these say, and whatever audits and attacks ask.
FREE_KEYS = frozenset({"dataset.root", "dataset.download", "device", "training.evaluate_on"})
FREE_BLOCKS = ("attack.", "audit.")


def check_trained_with(made_with: Mapping[str, Any], config: Config, remedy: str) -> None:
    """Refuse another configuration than the model's.

    Args:
        made_with: the configuration that it was trained with, by dotted key.
        remedy: what to do, as the refusal tells it.

    Raises:
        InputError: it names the first key that differs, with both values.
    """
    for key, (before, value) in changed(made_with, config).items():
        raise InputError(key, value, f"{MODEL} was trained with {before}; {remedy}")


def changed(made_with: Mapping[str, Any], config: Config) -> dict[str, tuple[object, object]]:
    """The keys in which a configuration is not the model's, with both values."""
    every = differences(completed(made_with), completed(essentials(config)))
    return {
        key: values
        for key, values in every.items()
        if key not in FREE_KEYS and not key.startswith(FREE_BLOCKS)
    }


def check_promise(pipeline: Pipeline, catalog: CatalogProtocol, config: Config) -> None:
    """Refuse to leave the promise of one configuration beside the model and the card of another.

    A run that trains replaces the model too.

    Raises:
        InputError: see `check_trained_with`.
    """
    outputs = pipeline.all_outputs()
    if "model" in outputs or not privacy.create_pipeline().all_outputs() & outputs:
        return
    if all(map(catalog.exists, ("model", "model_configuration"))):
        remedy = "give that, or this run a cell of its own with cell=NAME"
        check_trained_with(catalog.load("model_configuration"), config, remedy)
