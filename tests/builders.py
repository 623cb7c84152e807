"""Experiments that tests put together: the configuration of conf/base with a few keys changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kedro.config import OmegaConfigLoader

from m2fdp.config import Config, DatasetConfig, parse_config
from m2fdp.data.dataset import Dataset
from m2fdp.data.sources import load_dataset
from m2fdp.experiments import Experiment

CONF = Path(__file__).parents[1] / "conf"


def config_of(*changes: Mapping[str, Any]) -> Config:
    """conf/base with the changes made, one after the other."""
    merged = OmegaConfigLoader(CONF, base_env="base", default_run_env="base")["parameters"]
    for change in changes:
        merged = _merged(merged, change)
    return parse_config(merged)


def experiment_of(
    *changes: Mapping[str, Any], change_data: Callable[[Dataset], Dataset] | None = None
) -> Experiment:
    """An experiment on digits, or on what `change_data` makes of them."""
    dataset = change_data(digits()) if change_data else digits()
    return Experiment.from_config(config_of(*changes), dataset)


@cache
def digits() -> Dataset:
    """Loaded once, for all tests of a process."""
    return load_dataset(DatasetConfig())


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        nested = isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        result[key] = _merged(below[key], value) if nested else value
    return result
