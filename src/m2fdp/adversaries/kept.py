"""Results of an attack that are on the disk, one by one, so that it can go on where it was cut off.

A result has the name of what it is of, and a digest of all that it follows from: another
configuration, other records or another message ask for other files. What is read is to the bit
what was computed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from m2fdp.core.files import replacing

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Kept:
    """Where results are kept.

    Attributes:
        folder: None keeps nothing.
        key: a digest of all that the results follow from.
    """

    folder: Path | None
    key: bytes

    def get(self, name: str, compute: Callable[[], Arrays], premises: bytes = b"") -> Arrays:
        """The result of that name, computed if it is not there whole.

        Args:
            premises: what it follows from besides the key.
        """
        if self.folder is None:
            return compute()
        digest = blake2b(self.key + b"|" + premises, digest_size=12).hexdigest()
        file = self.folder / f"{name}-{digest}.npz"
        try:
            with np.load(file, allow_pickle=False) as stored:
                return dict(stored)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # not there, or damaged
            result = compute()
        with replacing(file) as unfinished, unfinished.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **result)
        return result

    def clear(self) -> None:
        """Forget all results, of whatever attack: the folder is this one's."""
        if self.folder is not None:
            for file in self.folder.glob("*.npz"):
                file.unlink(missing_ok=True)
