"""Keys that were removed, and what stays of them."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple


class Retired(NamedTuple):
    """What every run has now, the line that says so, and the key behind which that is recorded.

    Noise streams, hashes of cells and saved configurations so stay what they were. `after` is None
    for a key that was recorded only where it had another value (`SINCE`).
    """

    default: Any
    why: str
    after: str | None = None


def _gone(default: Any, remedy: str, after: str | None = None, version: str = "0.21") -> Retired:
    return Retired(default, f"was removed in {version}: {remedy}", after)


def _fixed(value: Any, whose: str, after: str | None = None) -> Retired:
    return _gone(value, f"{value} is {whose}; leave it out", after)


_UNIT, _DRIFT = "privacy.unit", "worst_case is what every run has; leave it out"
_YOGI, _PLATEAU = "Yogi's own constant (Reddi et al. 2021)", "what every run has (D A.4)"
_EVERY = "what every run has"
_RNG = (
    "a simulated run draws by its seed, and nodes of m2fdp plan each draw from their operating "
    "system; leave it out"
)
_LEARNERS = "as many learners are stepped at once as fit the cache; leave it out"
_LOCAL_MEANS = "use privacy.mechanism: gradient, whose local means are noised"
_SYSTEM = "set MLflow's own variable MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=true"
RETIRED = {
    "privacy.drift": _gone("worst_case", _DRIFT, _UNIT, "0.20"),
    "privacy.smoothness": _gone(None, _DRIFT, _UNIT, "0.20"),
    "privacy.downlink_noise": _gone(False, _LOCAL_MEANS, _UNIT),
    "privacy.secure_rng": _gone(False, _RNG, "privacy.budget"),
    "training.example_cap": _gone(None, "every device weighs 1, as with null; leave it out"),
    "training.chunk_size": _gone(None, _LEARNERS),
    "training.server.beta_1": _fixed(0.9, _YOGI),
    "training.server.beta_2": _fixed(0.99, _YOGI),
    "training.server.tau": _fixed(1e-3, _YOGI),
    "training.plateau.patience": _fixed(10, _PLATEAU),
    "training.plateau.threshold": _fixed(1e-4, _PLATEAU),
    "resources.bits_per_parameter": _fixed(32, _EVERY, "resources.wired_rate_mbps"),
    "tiering.ema": _fixed(0.6667, _EVERY),
    "tiering.initial_tier": _fixed(1, _EVERY),
    "clock.server_gflops": _fixed(350.0, "what D's Table 1 implies"),
    "clock.switch_share": _fixed(0.3, "D's (Sec. 4.1)"),
    "clock.label_bytes": _fixed(8.0, _EVERY),
    "dataset.classes": _fixed(10, "what synthetic records have"),
    "attack.total_variation": _fixed(1e-6, _EVERY),
    "attack.confidence": _fixed(0.95, _EVERY),
    "deployment.keepalive_s": _fixed(10.0, _EVERY),
    "deployment.chunk_bytes": _fixed(2**18, _EVERY),
    "topology.super_nodes.tolerance": _fixed("byzantine", _EVERY),
    "secure_aggregation.on_loss": _fixed("skip", _EVERY),
    "training.weight_decay": _fixed(0.0, _EVERY),
    "tiering.remember": _fixed(False, "D's scheduler"),
    "tiering.aggregate": _fixed("samples", _EVERY),
    "tiering.server_epochs": _fixed(1, _EVERY),
    "clock.width": _fixed(16, "D's"),
    "clock.records": _fixed(50_000, "D's"),
    "clock.clients": _gone(10, "the devices of topology.fanouts are"),
    "clock.rounds": _gone(150, "use training.rounds"),
    "clock.cpu_gflops": _fixed(150.0, "what D's Table 1 implies"),
    "clock.scaling": _fixed("measured", "what every run has, from 0.1 to 4 CPUs,"),
    "audit.neighbours": _fixed(200, _EVERY),
    "audit.confidence": _fixed(0.95, _EVERY, "audit.rounds"),
    "partition.level": _fixed("device", _EVERY, "partition.alpha"),
    "training.optimizer": _fixed("adam", "D's (Sec. 4.1)"),
    "privacy.activation_clip": _fixed(1.0, _EVERY),
    "attack.images": _fixed(4, _EVERY),
    "pdf": _gone(False, "use figures: pdf"),
    "system_metrics": _gone(False, _SYSTEM),
}


def less_retired(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Nested parameters of an earlier version, less removed keys with the value of every run."""
    kept = deepcopy(dict(parameters))
    for key, retired in RETIRED.items():
        *blocks, name = key.split(".")
        block: Any = kept
        for part in blocks:
            block = block.get(part, {})
        if name in block and block[name] == retired.default:
            del block[name]
    return kept
