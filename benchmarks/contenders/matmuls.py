"""Rooflines: only the matrix products of a round.

Those of one of m2fdp's own rounds on warm operands; or, of a linear model, what no step over all
records can do without: their scores, and the product of errors and records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.contenders import Round, engine
from benchmarks.works import N_CLASSES, Work, build_data

_TILE = 1024
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm"}


def prepare(work: Work, threads: int, device: str) -> Round:
    """Records the products of a real round, and replays them in order, on one thread.

    Operands of equal shape and strides share one tensor, which is warm in the caches: no round
    can do its products faster.

    Raises:
        RuntimeError: the round ran no matrix product on this thread.
    """
    process, (plan, *_) = engine.build(work, 1, device)
    state = process.start()
    with _Recorder() as recorder:
        process.round(state, plan)
    if not recorder.calls:
        raise RuntimeError("the round ran no matrix product that could be recorded")

    def round_() -> None:
        with torch.no_grad():
            for product, arguments, options in recorder.calls:
                product(*arguments, **options)

    return round_


def prepare_tiles(work: Work, threads: int, device: str) -> Round:
    """The two products over all records, 1,024 at a time, so that the second finds in the cache
    what the first read; once a local step of a round, with all threads."""
    features = build_data(work, device).features.flatten(1)
    matrix = torch.randn(N_CLASSES, features.shape[1], device=device)
    errors = torch.randn(N_CLASSES, len(features), device=device)

    def round_() -> None:
        with torch.no_grad():
            for _ in range(work.local_steps):
                for start in range(0, len(features), _TILE):
                    tile = slice(start, start + _TILE)
                    torch.mm(matrix, features[tile].T)
                    torch.mm(errors[:, tile], features[tile])

    return round_


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Tensor], list[Any], dict[str, Any]]] = []
        self._operands: dict[tuple[Any, ...], Tensor] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001
        kwargs = kwargs or {}
        if func.overloadpacket.__name__.rstrip("_") in _PRODUCTS:
            arguments = [self._stand_in(i, value) for i, value in enumerate(args)]
            options = {key: self._stand_in(key, value) for key, value in kwargs.items()}
            self.calls.append((func, arguments, options))
        return func(*args, **kwargs)

    def _stand_in(self, place: int | str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        key = (place, tuple(value.shape), value.stride(), value.dtype)
        if key not in self._operands:
            like = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )
            self._operands[key] = like.copy_(value.detach())
        return self._operands[key]
