"""Keys that were removed, and what stays of them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
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
    "privacy.downlink_noise": Retired(
        False,
        "privacy.unit",
        "was removed in 0.21: use privacy.mechanism: gradient, whose local means are noised",
    ),
    "privacy.secure_rng": Retired(
        False,
        "privacy.budget",
        "was removed in 0.21: a simulated run draws by its seed, and nodes of m2fdp plan each draw "
        "from their operating system; leave it out",
    ),
    "training.example_cap": Retired(
        None, None, "was removed in 0.21: every device weighs 1, as with null; leave it out"
    ),
    "training.chunk_size": Retired(
        None,
        None,
        "was removed in 0.21: as many learners are stepped at once as fit the cache; leave it out",
    ),
}


def less_retired(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The nested parameters that an earlier version saved, less the removed keys whose value there
    is what every run has now."""
    kept = deepcopy(dict(parameters))
    for key, retired in RETIRED.items():
        *blocks, name = key.split(".")
        block: Any = kept
        for part in blocks:
            block = block.get(part, {})
        if name in block and block[name] == retired.default:
            del block[name]
    return kept
