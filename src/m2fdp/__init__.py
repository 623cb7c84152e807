"""Differentially private federated learning over networks of trusted and untrusted servers.

`Experiment` and `load_config` are all that a notebook needs. They load with their first use, so
that a command that needs neither starts quickly.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from m2fdp.core.rooms import list_rooms
from m2fdp.moved import Moved

if TYPE_CHECKING:
    from m2fdp.experiment import Experiment
    from m2fdp.given.loading import load_config

__all__ = ["Experiment", "__version__", "load_config"]
__version__ = version("m2fdp")

_ROOMS = (
    "costs adversaries control zones global_dp tiers scaffold chance secure_aggregation "
    "convergence features nets own tables sources given processes checkpoints deployment reporting"
)
list_rooms(*(f"m2fdp.{room}" for room in _ROOMS.split()))
sys.meta_path.append(Moved)

_MODULES = {"Experiment": "m2fdp.experiment", "load_config": "m2fdp.given.loading"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
