"""Differentially private federated learning over networks of trusted and untrusted servers.

`Experiment` and `load_config` are all that a notebook needs. They load with their first use, so
that a command that needs neither starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m2fdp.config import load_config
    from m2fdp.experiments.experiment import Experiment

__all__ = ["Experiment", "__version__", "load_config"]
__version__ = version("m2fdp")

_MODULES = {"Experiment": "m2fdp.experiments.experiment", "load_config": "m2fdp.config"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
