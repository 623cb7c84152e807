"""What a controlled run can't be (`control.enabled`)."""

from __future__ import annotations

from collections.abc import Mapping

from m2fdp.algorithms import ALGORITHMS
from m2fdp.experiments.pairs.base import rows_where, shown
from m2fdp.experiments.request import Request

_ABLE = ", ".join(name for name, algorithm in ALGORITHMS.items() if algorithm.controllable)
_UNPRICED = "is nothing that the controller (control.enabled) prices; use"


_controlled = rows_where(lambda request: request.config.control.enabled, "control.enabled")


def _deeper(request: Request) -> Mapping[str, object] | None:
    deeper = [layer for layer in request.plan.schedule.local_aggregation if layer > 1]
    return {"shown": deeper[0]} if deeper else None


def _beyond_the_rounds(request: Request) -> Mapping[str, object] | None:
    control, rounds = request.config.control, request.plan.schedule.rounds
    most = control.max_local_steps
    if control.gap != "mechanism" or (control.tau or 0) <= rounds * most:
        return None
    return {"rounds": rounds, "most": most}


CONTROL = (
    _controlled(
        "control.enabled",
        "true",
        lambda request: not request.algorithm.controllable,
        f"belongs to algorithm: {_ABLE}, not to {{algorithm}}",
        f"algorithm: all but {_ABLE}",
    ),
    _controlled(
        "training.participants",
        "any number",
        lambda request: shown(request.participants),
        "is what the controller chooses (control.enabled); use null",
    ),
    _controlled(
        "training.server.rule",
        "momentum, yogi",
        lambda request: request.training.server.rule != "average",
        f"{_UNPRICED} average",
    ),
    _controlled(
        "control.enabled",
        "true",
        lambda request: request.network.tree.depth < 2,
        "needs edge servers whose participation it can choose",
        "topology.fanouts: of one number",
    ),
    _controlled(
        "training.local_aggregation",
        "layers above 1",
        _deeper,
        "is a layer that the controller does not aggregate at; valid: 1",
    ),
    _controlled(
        "control.tau",
        "more than the rounds have room for",
        _beyond_the_rounds,
        "is more than training.rounds = {rounds} rounds of control.max_local_steps = {most} have "
        "room for",
        "training.rounds, control.max_local_steps",
    ),
    _controlled(
        "privacy.mechanism",
        "weights",
        lambda request: request.clipping.of_models,
        "clips no step that the controller (control.enabled) could price; use gradient or upload",
    ),
    _controlled(
        "secure_aggregation.layers",
        "any",
        lambda request: (
            bool(request.network.sums.layers) and request.config.control.gap == "papers"
        ),
        "is nothing that control.gap: papers prices; use [], or gap: mechanism",
        "control.gap: papers",
    ),
    _controlled(
        "topology.super_nodes.kind",
        "elected",
        lambda request: request.network.elected,
        f"{_UNPRICED} fixed",
    ),
    _controlled(
        "privacy.calibration",
        "multiplier",
        lambda request: request.privacy.noise_multiplier is not None,
        "has no epsilon that the controller (control.enabled) could price; use accountant",
    ),
    _controlled(
        "topology.weights",
        "samples",
        lambda request: request.config.topology.weights == "samples",
        f"{_UNPRICED} uniform",
    ),
)
