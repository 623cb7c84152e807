"""What H's algorithms are, beside algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from m2fdp.core.algorithms.base import Algorithm


@dataclass(frozen=True)
class ZoneAlgorithm(Algorithm):
    """One of H's algorithms: a run tells what the observers of its zones learn.

    Attributes:
        zoned: whether it reads the configuration's `zones`.
    """

    zoned: bool = False
