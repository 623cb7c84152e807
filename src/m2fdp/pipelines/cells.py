"""What lies in a cell is of one configuration: that of its model, where it has one. So is what is
said of the run, by whatever command: its verdict can only be lowered until the next training."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline

from m2fdp.checkpoints.files import differences
from m2fdp.core.config import Config, completed, essentials
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.verdict import (
    LOST,
    OTHER_RECORDS,
    VERDICT,
    Verdict,
    keep,
    kept,
    lowered,
    run_digest,
)
from m2fdp.pipelines import privacy

MODEL = "model.pt"
# A model and its promise stay the same whatever these say, and whatever audits and attacks ask.
FREE_KEYS = frozenset({"dataset.root", "dataset.download", "device", "training.evaluate_on"})
FREE_BLOCKS = ("attack.", "audit.")
SUMMARY = "privacy_summary"

logger = logging.getLogger(__name__)


def check_trained_with(made_with: Mapping[str, Any], config: Config, remedy: str) -> None:
    """Refuse another configuration than the model's.

    Args:
        made_with: the configuration that it was trained with, by dotted key.
        remedy: what to do, as the refusal tells it.

    Raises:
        InputError: it names the first key that differs, with both values.
    """
    for key, (before, value) in _changed(made_with, config).items():
        raise InputError(key, value, f"{MODEL} was trained with {before}; {remedy}")


def _changed(made_with: Mapping[str, Any], config: Config) -> dict[str, tuple[object, object]]:
    changed = differences(completed(made_with), completed(essentials(config)))
    return {
        key: values
        for key, values in changed.items()
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


def verdict_of(
    folder: Path, catalog: CatalogProtocol, config: Config, private: bool
) -> Verdict | None:
    """The verdict of the run that has trained, or begun to, in the cell, if it is this one.

    A model without one may rest on anything.

    Args:
        folder: the cell's, that of its model.
        private: whether the run has a promise to keep.
    """
    verdict, run = kept(folder), run_digest(config)
    if verdict is not None and (verdict.run, verdict.private) == (run, private):
        return verdict
    is_damaged = verdict is None and (folder / VERDICT).exists()
    if private and (is_damaged or (catalog.exists("model") and _is_of(catalog, config))):
        return Verdict(run, "", private, (LOST,))
    return None


def lower(folder: Path, verdict: Verdict, conditions: Sequence[str]) -> bool:
    """Let a verdict rest on what a later command has found, too; not of other records, which say
    nothing of the model.

    Returns:
        Whether what was said of the model before may say too much.
    """
    added = [line for line in conditions if line not in verdict.rests_on]
    said_more = verdict.guarantee == "verified" if added else kept(folder) != verdict
    if OTHER_RECORDS in added:
        return False
    keep(folder, replace(verdict, conditions=(*verdict.conditions, *added)))
    if not said_more:
        return False
    logger.warning(
        "The cell's model is conditional from now on; --pipelines=evaluation writes its card anew."
    )
    return True


def lower_summary(catalog: CatalogProtocol, conditions: Sequence[str]) -> None:
    """Let what an earlier command has written of the promise rest on what is known by now."""
    if not catalog.exists(SUMMARY):
        return
    promised = catalog.load(SUMMARY)
    if (by_now := lowered(promised, conditions)) != promised:
        catalog.save(SUMMARY, by_now)


def _is_of(catalog: CatalogProtocol, config: Config) -> bool:
    """Whether the model in the cell is of a configuration; of an unknown one it may be."""
    if not catalog.exists("model_configuration"):
        return True
    return not _changed(catalog.load("model_configuration"), config)
