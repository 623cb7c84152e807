"""Runs and their history that panels show."""

from typing import Any

import numpy as np
import pandas as pd

from m2fdp.claims.frames import RUN_COLUMNS
from m2fdp.claims.measuring import measure_runs

ROUNDS = np.arange(1, 7)
Frames = tuple[pd.DataFrame, pd.DataFrame]


def study(*groups: dict[str, Any], target: float | None = None) -> Frames:
    """Measured runs and their history: of each group a run for each of its final accuracies."""
    runs, history = [], []
    for group in groups:
        values = {"algorithm": "m2fdp", "finals": (0.5, 0.7)} | group
        finals = values.pop("finals")
        for seed, final in enumerate(finals):
            run_id = f"run{len(runs)}"
            rest = dict.fromkeys(RUN_COLUMNS, 1.0)
            runs.append(rest | values | {"run_id": run_id, "seed": seed, "accuracy": final})
            rounds = {"run_id": run_id, "algorithm": values["algorithm"], "seed": seed}
            rounds |= {"round": ROUNDS, "accuracy": final * ROUNDS / 6, "loss": 3 - final * ROUNDS}
            rounds |= {"energy_j": 2.0 * ROUNDS, "delay_s": 3.0 * ROUNDS}
            history.append(pd.DataFrame(rounds))
    frame, rounds = pd.DataFrame(runs).set_index("run_id"), pd.concat(history, ignore_index=True)
    return measure_runs(frame, rounds, target_accuracy=target), rounds


ARMS = study(
    {"arm": "hfl", "algorithm": "hfl", "version": "paper", "finals": (0.8, 0.9)},
    {"arm": "hfl_dp", "algorithm": "hfl_dp", "version": "paper"},
    {"arm": "p1_1", "version": "paper", "finals": (0.6, 0.8)},
    {"arm": "hfl", "algorithm": "hfl", "version": "verified", "finals": (0.7, 0.8)},
    {"arm": "p1_1", "version": "verified", "finals": (0.4, 0.6)},
)
OVER_ROUNDS = [
    {"title": name, "x": "round", "where": {"version": name}} for name in ("paper", "verified")
]
EPSILONS = study(
    *(
        {
            "algorithm": "m2fdp" if ratio else "hfl_dp",
            "topology.trust.ratios": f"[{ratio}]",
            "privacy.epsilon": epsilon,
            "finals": (0.2 + 0.2 * ratio + 0.1 * epsilon, 0.4 + 0.2 * ratio + 0.1 * epsilon),
        }
        for epsilon in (2.0, 0.5)
        for ratio in (1.0, 0.0, 0.5)
    )
)
TARGETS = study(
    {"arm": "control", "finals": (0.75, 0.8, 0.9)},
    {"arm": "hfl_dp", "algorithm": "hfl_dp", "finals": (0.75, 0.7, 0.9)},
    {"arm": "pedpfl", "algorithm": "pedpfl", "finals": (0.5, 0.5, 0.6)},
    target=0.75,
)
