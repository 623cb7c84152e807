"""Values as bytes, for another process to compute with."""

import io
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def packed(value: object, fixed: Sequence[object] = ()) -> bytes:
    """A value as bytes, tensors on the CPU without the rest of the storage that they are views of.

    Args:
        fixed: objects that whoever unpacks it has already; their places are all that is packed.
    """
    file = io.BytesIO()
    _Pickler(file, fixed).dump(value)
    return file.getvalue()


def unpacked(content: bytes, fixed: Sequence[object] = ()) -> Any:
    """What was packed, with the same `fixed`."""
    return _Unpickler(io.BytesIO(content), fixed).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, fixed: Sequence[object]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._places = {id(value): place for place, value in enumerate(fixed)}

    def persistent_id(self, value: Any) -> int | None:
        return self._places.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor:
            return torch.from_numpy, (value.detach().contiguous().numpy(),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, fixed: Sequence[object]) -> None:
        super().__init__(file)
        self._fixed = fixed

    def persistent_load(self, place: int) -> object:
        return self._fixed[place]
