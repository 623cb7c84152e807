"""Experiments that tests put together: the default configuration with a few keys changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from m2fdp.config import DatasetConfig, load_config
from m2fdp.data.dataset import Dataset
from m2fdp.data.sources import load_dataset
from m2fdp.experiments import Experiment


def experiment_of(
    *changes: Mapping[str, Any], change_data: Callable[[Dataset], Dataset] | None = None
) -> Experiment:
    """An experiment on digits, or on what `change_data` makes of them.

    Args:
        changes: of the defaults, one after the other, nested or with dotted keys.
    """
    dataset = change_data(digits()) if change_data else digits()
    return Experiment.from_config(load_config(*changes), dataset)


@cache
def digits() -> Dataset:
    """Loaded once, for all tests of a process."""
    return load_dataset(DatasetConfig())
