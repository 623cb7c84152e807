"""What a tree of real processes can't do (`m2fdp plan`)."""

from __future__ import annotations

from collections.abc import Callable

from m2fdp.experiments.pairs.base import Found, Pair, shown
from m2fdp.experiments.request import Request
from m2fdp.simulation.local_rules import adds_up

_SEEN = "who takes part in a round is seen by whoever it is sent to; use"


_PLANNED = "the command m2fdp plan"


def _row(
    key: str,
    values: str,
    clashes: Callable[[Request], Found],
    text: str,
    beside: str = _PLANNED,
) -> Pair:
    return Pair(key, values, beside, clashes, text)


def _masked(key: str, values: str, clashes: Callable[[Request], bool], text: str) -> Pair:
    return _row(
        f"secure_aggregation.{key}",
        values,
        lambda request: bool(request.network.sums.layers) and clashes(request),
        text,
        f"{_PLANNED}, secure_aggregation.layers",
    )


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
        lambda request: shown(request.joining),
        f"draws devices, and {_SEEN} null",
    ),
    _row(
        "training.participants",
        "any",
        lambda request: shown(request.participants),
        f"draws devices, and {_SEEN} null",
    ),
    _row(
        "training.estimator",
        "fixed, clipped",
        lambda request: shown(request.weighing),
        "weighs updates by who takes part, which all do; use mean",
    ),
    _row(
        "training.proximal_center",
        "global, with local aggregations",
        lambda request: (
            request.plan.schedule.proximal > 0
            and request.plan.schedule.center == "global"
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
    _masked(
        "protocol",
        "ideal",
        lambda request: request.config.secure_aggregation.protocol == "ideal",
        "adds up in clear, which no node but one that all trust could do; use masks",
    ),
    _masked(
        "layers",
        "any, under privacy.mechanism: gradient",
        lambda request: request.privacy.mechanism == "gradient",
        "are sums of gradients at every local step (privacy.mechanism: gradient), and nodes mask "
        "models; use upload",
    ),
    _masked(
        "decode",
        "cloud",
        lambda request: request.network.sums.decode == "cloud",
        "has servers pass on what they can't read, and nodes answer their parents; use parent",
    ),
    _masked(
        "dropout",
        "above 0",
        lambda request: request.network.sums.dropout > 0,
        "draws who falls silent, and nodes do so by themselves (deployment.on_missing); use 0",
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
