"""torchvision beside a CPU build of torch, where its compiled operators can't load.

Importing torchvision registers shape functions for the operators `nms` and `qnms` and stops if
their schemas are unknown, which is so wherever its compiled library needs CUDA and finds none.
Declaring the two schemas is enough for data sets, transforms and models; the operators
themselves stay unusable there.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_datasets() -> ModuleType:
    """`torchvision.datasets`, importable with or without the compiled operators."""
    if "torchvision" not in sys.modules and not _compiled_operators_load():
        _declare_operators()
    from torchvision import datasets

    return datasets


@cache
def _declare_operators() -> torch.library.Library:
    """The cache keeps the library alive: its schemas vanish with it."""
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(operator + _BOXES)
    return library


def _compiled_operators_load() -> bool:
    # Finding a top-level package's spec does not execute the package.
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent
    library = next((p for s in EXTENSION_SUFFIXES if (p := folder / f"_C{s}").is_file()), None)
    if library is None:
        return False
    try:
        torch.ops.load_library(library)
    except OSError:
        return False
    return True
