"""Keys that were removed, and what stays of them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Retired(NamedTuple):
    """What every run has now, the key behind which that is recorded, and the line that says so.

    Noise streams, hashes of cells and saved configurations so stay what they were. `after` is None
    for a key that was recorded only where it had another value (`SINCE`).
    """

    default: Any
    after: str | None
    why: str


_DRIFT = "was removed in 0.20: worst_case is what every run has; leave it out"
RETIRED = {
    "privacy.drift": Retired("worst_case", "privacy.unit", _DRIFT),
    "privacy.smoothness": Retired(None, "privacy.unit", _DRIFT),
}
