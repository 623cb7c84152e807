"""The contenders: each module has functions `(work, threads, device) -> Round`."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torch import Tensor

from benchmarks.works import Work

# Runs the next round and returns the new global weights (M,), or None if it trains nothing.
Round = Callable[[], Tensor | None]

OURS = "m2fdp"
ON_RAY = "m2fdp on Ray"
MATMULS = "bare matrix products"
TILES = "two products over all records"
PFL = "pfl-research"
FLOWER = "Flower"
OPACUS = "Opacus per device"
PLAIN = "deepcopy + DataLoader"

# What one run is shared by in work h, one of them and several: `threads` says how many.
SHARED_BY = {OURS: ("process", "processes"), ON_RAY: ("Ray node", "Ray nodes")}

# Where a peer has several good configurations all are measured, and the best one counts.
_FUNCTIONS = {
    OURS: "engine:prepare",
    ON_RAY: "engine:prepare_on_ray",
    MATMULS: "matmuls:prepare",
    TILES: "matmuls:prepare_tiles",
    f"{PFL}, one process": "pfl_research:prepare",
    f"{PFL}, a process a core": "pfl_research:prepare_distributed",
    FLOWER: "flower:prepare",
    f"{OPACUS}, hooks": "opacus_engines:prepare_hooks",
    f"{OPACUS}, ghost clipping": "opacus_engines:prepare_ghost",
    PLAIN: "plain_loop:prepare",
}


def variants(peer: str) -> list[str]:
    """The contenders that are configurations of a peer."""
    return [name for name in _FUNCTIONS if name == peer or name.startswith(f"{peer}, ")]


def sharing(contender: str, count: int) -> str:
    """What a run is shared by, such as `2 processes`."""
    one, several = SHARED_BY[contender]
    return f"{count} {one if count == 1 else several}"


def prepare(contender: str, work: Work, threads: int, device: str) -> Round:
    """Everything before the first round. A contender's libraries are imported only here."""
    module, function = _FUNCTIONS[contender].split(":")
    prepared = getattr(importlib.import_module(f"benchmarks.contenders.{module}"), function)
    return prepared(work, threads, device)
