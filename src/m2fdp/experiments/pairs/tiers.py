"""What does not go with training in tiers, and with devices that split their model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from m2fdp.config import TRAINED
from m2fdp.experiments.pairs.base import Found, Pair, rows_where, shown
from m2fdp.experiments.request import Request
from m2fdp.models.names import SPLIT_MODELS
from m2fdp.privacy.mechanisms.splits import exposed_splits

_TIERS = "algorithms that train in tiers"
_SPLIT_IN_STEPS = "algorithm: m2fdp_tiers"
_SPLITS = "algorithm: m2fdp_tiers, dtfl_dp"


def _in_tiers(
    key: str, values: str, beside: str, clashes: Callable[[Request], Found], text: str
) -> Pair:
    """A row of runs in tiers alone."""
    return Pair(
        key, values, beside, lambda request: request.way is not None and clashes(request), text
    )


def _unknown_in_tiers(key: str, remedy: str) -> Pair:
    """A row of a key that runs in tiers leave at its default."""
    return _in_tiers(
        key,
        "any but its default",
        _TIERS,
        lambda request: request.changed(key),
        f"is nothing that algorithms in tiers know; use {remedy}",
    )


def _otherwise_counted(request: Request) -> Mapping[str, object] | None:
    counted = request.plan.schedule.local_steps
    if not request.plan.private or counted == request.training.local_epochs:
        return None
    return {"counted": counted}


def _steps_apart_anyway(request: Request) -> bool:
    teaching = request.way is not None and not request.way.averaged
    return teaching and request.training.backend == "reference"


def _more_than_cuts(request: Request) -> Mapping[str, object] | None:
    model = request.config.model.name
    cuts = SPLIT_MODELS[model]
    if request.way is None or not request.way.tiered or request.config.tiering.tiers <= cuts:
        return None
    return {"model": model, "cuts": cuts}


def _other_modules(request: Request) -> Mapping[str, object] | None:
    model = request.config.model.name
    if model == "resnet" or request.config.clock.model == TRAINED:
        return None
    return {"model": model, "trained": TRAINED}


IN_TIERS = (
    _in_tiers(
        "algorithm",
        "private ones in tiers",
        "devices that do not split their model below an untrusted server",
        lambda request: request.plan.private and not exposed_splits(request.network).all(),
        "trains in tiers, where only devices that split their model below a server that nobody "
        "trusts noise what they send, and has others (Network.splits); split it on all of them",
    ),
    _in_tiers(
        "training.local_epochs",
        "another number than the ledger counts",
        "private algorithms in tiers",
        _otherwise_counted,
        "releases every record as often a round, and algorithm: {algorithm} has the ledger count "
        "{counted} (Schedule.local_steps); make them equal",
    ),
    _in_tiers(
        "training.backend",
        "reference",
        "algorithm: fedgkt",
        _steps_apart_anyway,
        "is how the two parties of algorithm: {algorithm} step anyway; use auto",
    ),
    _in_tiers(
        "model.name",
        f"all but {', '.join(SPLIT_MODELS)}",
        _TIERS,
        lambda request: request.config.model.name not in SPLIT_MODELS,
        f"can't be trained in tiers; {', '.join(SPLIT_MODELS)} can",
    ),
    _in_tiers(
        "tiering.tiers",
        "more than the model can be cut into",
        "model.name",
        _more_than_cuts,
        "is more than {model}'s {cuts}",
    ),
    _in_tiers(
        "clock.model",
        f"all but {TRAINED}",
        "model.name: all but resnet",
        _other_modules,
        "has other modules than model.name: {model}; use {trained}",
    ),
    _in_tiers(
        "training.batch_size",
        "not whole",
        _TIERS,
        lambda request: (
            request.training.batch_size is not None and request.training.batch_size % 1 > 0
        ),
        "must be whole, as batches are exact",
    ),
    _in_tiers(
        "training.evaluate_every",
        "above 1",
        "training.plateau.factor",
        lambda request: request.training.plateau.factor < 1 and request.training.evaluate_every > 1,
        "leaves a plateau (training.plateau.factor) rounds that it can't see; use 1",
    ),
    _in_tiers(
        "training.backend",
        "sequential, stacked",
        _TIERS,
        lambda request: request.training.backend not in ("auto", "reference"),
        "is not for tiers; use auto",
    ),
    _in_tiers(
        "training.step_size",
        "inverse_sqrt",
        _TIERS,
        lambda request: request.training.step_size != "constant",
        "is not D's; use constant",
    ),
    _in_tiers(
        "training.participation",
        "any",
        _TIERS,
        lambda request: shown(request.joining),
        "is nothing that algorithms in tiers know; use null",
    ),
    _unknown_in_tiers("training.proximal", "0.0"),
    _unknown_in_tiers("topology.weights", "tiering.aggregate"),
    _unknown_in_tiers("secure_aggregation.layers", "[]"),
    _unknown_in_tiers("privacy.secure_rng", "false"),
)


_splitting = rows_where(lambda request: request.network.splits is not None, _SPLITS)
# Devices that send activations to a server that nobody trusts.
_exposed = rows_where(
    lambda request: bool(exposed_splits(request.network).any()),
    "activations that go to a server that nobody trusts (tiering.offload_to: anyone, dtfl_dp)",
)


_MANY = "is nothing that algorithm: {algorithm} splits its model with; use "


def _some_take_part(request: Request) -> Found:
    return shown(request.participants or request.joining)


def _beyond_epsilon(request: Request) -> Mapping[str, object] | None:
    privacy = request.privacy
    spent = privacy.labels == "randomised" and privacy.label_epsilon >= privacy.epsilon
    return {"epsilon": privacy.epsilon} if spent else None


_WHERE = "activations go to a server that nobody trusts"

SPLITS = (
    _exposed(
        "privacy.mechanism",
        "all but gradient",
        lambda request: request.privacy.mechanism != "gradient",
        f"leaves a client's gradients un-noised, and {_WHERE}: noise on them alone is not enough; "
        "use gradient",
    ),
    _exposed(
        "privacy.adjacency",
        "add_remove",
        lambda request: request.privacy.adjacency == "add_remove",
        f"is nothing that can be hidden where {_WHERE}, which sees their number; use zero_out or "
        "replace_one",
    ),
    _exposed(
        "privacy.unit",
        "device",
        lambda request: request.privacy.unit == "device",
        f"is not proven where {_WHERE}; use record",
    ),
    _exposed(
        "training.participation",
        "any",
        lambda request: shown(request.joining or request.weighing),
        f"is not proven where {_WHERE}; use null",
    ),
    _exposed(
        "privacy.label_epsilon",
        "privacy.epsilon and above",
        _beyond_epsilon,
        "must be below privacy.epsilon = {epsilon:g}, which it is a part of",
    ),
    _splitting(
        "privacy.mechanism",
        "upload, weights",
        lambda request: not request.mechanism.noises_every_step,
        f"{_MANY}gradient, whose every step is noised",
    ),
    _splitting(
        "privacy.unit", "device", lambda request: request.privacy.unit == "device", f"{_MANY}record"
    ),
    _splitting(
        "model.name",
        f"all but {', '.join(SPLIT_MODELS)}",
        lambda request: request.config.model.name not in SPLIT_MODELS,
        "can't be split; valid for algorithm: {algorithm} are " + ", ".join(SPLIT_MODELS),
    ),
    _splitting(
        "model.norm",
        "batch",
        lambda request: (
            request.config.model.name == "resnet" and request.config.model.norm == "batch"
        ),
        "mixes the records of a batch, so that no record's gradient or activations are its own; "
        "use group",
    ),
    _splitting(
        "leakage",
        "any but its default",
        lambda request: request.changed("leakage"),
        f"{_MANY}neither: both are without a promise, and what is sent has one already",
    ),
    _splitting(
        "secure_aggregation.layers",
        "any",
        lambda request: bool(request.config.secure_aggregation.layers),
        f"{_MANY}[]",
    ),
    _splitting(
        "training.participants",
        "any number, or training.participation",
        _some_take_part,
        f"{_MANY}null: tiers are planned for all devices",
    ),
    _splitting(
        "topology.super_nodes.kind",
        "elected",
        lambda request: request.network.elected,
        f"{_MANY}fixed",
    ),
    _splitting(
        "training.backend",
        "stacked",
        lambda request: request.training.backend == "stacked",
        f"{_MANY}auto",
    ),
    _splitting(
        "tiering.profile",
        "paper",
        lambda request: request.config.tiering.profile == "paper" and request.way is None,
        f"{_MANY}clock: D's Table 2 is of whole local epochs",
        _SPLIT_IN_STEPS,
    ),
    _splitting(
        "privacy.labels",
        "randomised",
        lambda request: request.privacy.labels == "randomised" and request.privacy.secure_rng,
        "is drawn once a record, and privacy.secure_rng draws anew whenever a run is resumed; use "
        "public, or secure_rng: false",
        "privacy.secure_rng",
    ),
)
