"""What does not go with records that devices hold out, of which they send noised counts."""

from __future__ import annotations

from collections.abc import Callable

from m2fdp.experiments.pairs.base import Pair
from m2fdp.experiments.request import Request
from m2fdp.own_code import is_own


def _not_beside(beside: str, is_there: Callable[[Request], bool], text: str) -> Pair:
    return Pair(
        "partition.held_out_by",
        "devices",
        beside,
        lambda request: (
            request.config.partition.held_out_by == "devices"
            and request.config.partition.validation_fraction > 0
            and is_there(request)
        ),
        text,
    )


def _splits(request: Request) -> bool:
    return request.way is not None or request.network.splits is not None


SCORES = (
    _not_beside(
        "algorithms without privacy",
        lambda request: not request.plan.private,
        "has nobody who adds noise to a count (algorithm: {algorithm}); use cloud",
    ),
    _not_beside(
        "algorithms that train in tiers or split models",
        _splits,
        "counts what whole models get right, and algorithm: {algorithm} splits them; use cloud",
    ),
    _not_beside(
        "privacy.unit: device",
        lambda request: request.privacy.unit == "device",
        "sends counts that one record moves by one, and a device by all that it holds out; use "
        "privacy.unit: record, or cloud",
    ),
    _not_beside(
        "a model of your own",
        lambda request: is_own(request.config.model.name),
        "counts records that the model judges one by one, which nothing enforces of code of your "
        "own; use a model of the list, or cloud",
    ),
    _not_beside(
        "privacy.calibration: paper, multiplier",
        lambda request: request.privacy.calibration != "accountant",
        "needs an epsilon that the count is noised for; use privacy.calibration: accountant, or "
        "cloud",
    ),
    _not_beside(
        "secure_aggregation.layers",
        lambda request: bool(request.config.secure_aggregation.layers),
        "sends counts that no sum hides; use no secure_aggregation.layers, or cloud",
    ),
    _not_beside(
        "topology.super_nodes.kind: elected",
        lambda request: request.network.elected,
        "sends counts by servers that stay what they are; use topology.super_nodes.kind: fixed, or "
        "cloud",
    ),
    _not_beside(
        "training.participation, and estimators of devices that join by chance",
        lambda request: request.network.participation is not None,
        "counts every device's records, whether it joins or not; let all devices join, or use "
        "cloud",
    ),
)
