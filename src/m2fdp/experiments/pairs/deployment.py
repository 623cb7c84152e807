"""What a tree of real processes can't do (`m2fdp plan`)."""

from __future__ import annotations

from collections.abc import Callable

from m2fdp.experiments.pairs.base import Pair
from m2fdp.experiments.request import Request
from m2fdp.simulation.local_rules import adds_up

_SEEN = "who takes part in a round is seen by whoever it is sent to; use"


_PLANNED = "the command m2fdp plan"


def _row(
    key: str,
    values: str,
    clashes: Callable[[Request], bool],
    text: str,
    beside: str = _PLANNED,
) -> Pair:
    return Pair(key, values, beside, clashes, text)


DEPLOYED = (
    _row(
        "algorithm",
        "those that train in tiers or split models",
        lambda request: request.way is not None or request.network.splits is not None,
        "trains in tiers or splits models, which nodes of their own can't do; use one of local "
        "steps, such as m2fdp",
    ),
    _row(
        "algorithm",
        "those with a local rule of their own (scaffold)",
        lambda request: not adds_up(request.plan.rules.local),
        "has a local rule of its own, which nodes of their own can't take; use m2fdp",
        f"{_PLANNED}, of plain steps",
    ),
    _row(
        "training.participation",
        "any",
        lambda request: request.training.participation is not None,
        f"draws devices, and {_SEEN} null",
    ),
    _row(
        "training.participants",
        "any",
        lambda request: request.training.participants is not None,
        f"draws devices, and {_SEEN} null",
    ),
    _row(
        "training.estimator",
        "fixed, clipped",
        lambda request: request.training.estimator != "mean",
        "weighs updates by who takes part, which all do; use mean",
    ),
    _row(
        "training.proximal_center",
        "global, with local aggregations",
        lambda request: (
            request.training.proximal > 0
            and request.training.proximal_center == "global"
            and bool(request.plan.schedule.local_aggregation)
        ),
        "is a model that a device is sent once, and it keeps none; use received",
    ),
    _row(
        "training.backend",
        "stacked",
        lambda request: request.training.backend == "stacked",
        "steps many devices together, and each is on its own; use auto",
    ),
    _row(
        "topology.super_nodes.kind",
        "elected",
        lambda request: request.network.elected,
        "makes devices servers by turns, and nodes have one place; use fixed",
    ),
    _row(
        "control.enabled",
        "true",
        lambda request: request.config.control.enabled,
        "decides rounds while they run, and nodes know them from the plan; use false",
    ),
    _row(
        "secure_aggregation.layers",
        "any",
        lambda request: bool(request.network.sums.layers),
        "are sums that hide their terms, which are simulated only; use []",
    ),
    _row(
        "partition.held_out_by",
        "devices",
        lambda request: request.config.partition.held_out_by == "devices",
        "has devices send a score, which nodes do not; use cloud",
    ),
    _row(
        "device",
        "cuda, cuda:N",
        lambda request: request.config.device != "cpu",
        "is nothing that every node has, and their noise is drawn on processors; use cpu",
    ),
)
