"""What a cluster can't compute: rounds that can't be cut into blocks of subtrees."""

from __future__ import annotations

from m2fdp.experiments.pairs.base import rows_where

_LOCAL = "use execution.engine: local"
_row = rows_where(lambda request: request.config.execution.engine == "ray", "execution.engine: ray")

EXECUTION = (
    _row(
        "algorithm",
        "those that train in tiers or split models",
        lambda request: request.way is not None or request.network.splits is not None,
        f"has servers that take part in every local step; {_LOCAL}",
    ),
    _row(
        "secure_aggregation.protocol",
        "masks",
        lambda request: request.config.secure_aggregation.protocol == "masks",
        f"has all nodes of a sum agree on masks, in one process; {_LOCAL}, or protocol: ideal",
    ),
    _row(
        "training.backend",
        "stacked",
        lambda request: request.training.backend == "stacked",
        f"steps so many devices together, of whatever subtrees; {_LOCAL}, or backend: auto",
    ),
    _row(
        "device",
        "cuda, cuda:N",
        lambda request: request.config.device != "cpu",
        f"is one GPU, and a cluster computes on processors; {_LOCAL}, or device: cpu",
    ),
)
