"""Who takes part in a round, what its local steps are, and what does not go with either."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from m2fdp import own_code
from m2fdp.experiments.pairs.base import Found, Pair, rows_where, shown
from m2fdp.experiments.request import Request
from m2fdp.simulation.local_rules import GradientStep
from m2fdp.simulation.server_rules import adding, server_rule_of
from m2fdp.topology.network import heads_of

_BY_CHANCE = "devices that join by chance, or whose updates are weighed"
_KEEPING = "algorithms whose local rule keeps something of devices (scaffold)"


def _chance(request: Request) -> dict[str, str]:
    """The key that takes devices in by rules of its own, with its value."""
    if request.joining is not None:
        return {"chance": f"training.participation = {request.joining}"}
    return {"chance": f"training.estimator = {request.weighing}"}


def _by_chance(request: Request) -> bool:
    return request.network.participation is not None


def _joining(request: Request, key: str) -> Found:
    """Whether devices join by rules of their own, which this key asks for."""
    return shown(request.joining if key == "participation" else request.weighing)


def _divides_by_weight(request: Request) -> Found:
    """Whether a zone's sum is over the weight of those who came."""
    participation, asked = request.network.participation, request.training.estimator
    if participation is None or participation.least_weight is None:
        return None
    return shown(asked if asked == "clipped" else request.weighing or request.joining)


def _unproven_aggregation(request: Request) -> Mapping[str, object] | None:
    """Below a head whose devices send it un-noised updates, how far a difference spreads is known
    for weights that sum to one only."""
    network = request.network
    if not (_by_chance(request) and request.plan.private) or request.mechanism.noises_every_step:
        return None
    head_layers = heads_of(network)[:, 0]
    lowest = head_layers[head_layers < network.tree.depth].min(initial=network.tree.depth)
    found = sorted(layer for layer in request.plan.schedule.layers() if layer and layer >= lowest)
    return {"shown": found[0], **_chance(request)} if found else None


def _sums_of_chance(request: Request) -> Mapping[str, object] | None:
    network, depth = request.network, request.network.tree.depth
    if not _by_chance(request) or network.chance is None or depth not in network.sums.layers:
        return None
    return {"shown": depth, **_chance(request)}


def _priced(key: str) -> Pair:
    return Pair(
        f"training.{key}",
        "any" if key == "participation" else "fixed, clipped",
        "control.enabled",
        lambda request: request.config.control.enabled and _joining(request, key),
        "is nothing that the controller (control.enabled) prices; use null, or mean",
    )


def _known_to_paper(key: str) -> Pair:
    return Pair(
        f"training.{key}",
        "any" if key == "participation" else "fixed, clipped",
        "privacy.calibration: paper",
        lambda request: (
            request.plan.private
            and request.privacy.calibration == "paper"
            and _joining(request, key)
        ),
        "is nothing that privacy.calibration: paper knows (Prop. 1 is for means over all); use "
        "calibration: accountant",
    )


PARTICIPATION = (
    Pair(
        "training.least_weight",
        "null",
        "training.estimator: clipped",
        lambda request: (
            request.training.estimator == "clipped" and request.training.least_weight is None
        ),
        "and training.estimator: clipped belong together: W_min, of a zone's devices together",
    ),
    Pair(
        "training.estimator",
        "clipped",
        "privacy.mechanism: gradient",
        lambda request: request.mechanism.noises_every_step and _divides_by_weight(request),
        "divides whole updates (privacy.mechanism: upload); use fixed",
    ),
    Pair(
        "training.participants",
        "any number",
        _BY_CHANCE,
        lambda request: (
            {"shown": request.participants, **_chance(request)}
            if _by_chance(request) and request.participants is not None
            else None
        ),
        "is so many of each lowest server's devices, and {chance} has rules of its own; use null",
    ),
    _priced("participation"),
    _priced("estimator"),
    Pair(
        "secure_aggregation.layers",
        "the devices' layer",
        "training.participation",
        _sums_of_chance,
        "are devices that join by chance ({chance}), of whom too few may come for a sum; use "
        "layers of servers",
    ),
    _known_to_paper("participation"),
    _known_to_paper("estimator"),
    Pair(
        "training.local_aggregation",
        "layers at or above servers that add the noise, under upload",
        _BY_CHANCE,
        _unproven_aggregation,
        "is not proven together with {chance} below servers that add the noise; use null, "
        "privacy.mechanism: gradient, or untrusted servers",
    ),
)


def _pulled_global(request: Request) -> bool:
    schedule = request.plan.schedule
    return bool(schedule.proximal) and schedule.center == "global"


def _noised_after_steps(request: Request) -> bool:
    return request.plan.private and not request.mechanism.noises_every_step


PROXIMAL = (
    Pair(
        "training.proximal_center",
        "global",
        "algorithms whose local rule is anchored",
        lambda request: _pulled_global(request) and request.plan.rules.local.anchored,
        "is not what the local rule of algorithm: {algorithm} is anchored at; use received",
    ),
    Pair(
        "training.proximal_center",
        "global",
        "secure_aggregation.protocol: masks",
        lambda request: (
            _pulled_global(request)
            and request.config.secure_aggregation.protocol == "masks"
            and bool(request.config.secure_aggregation.layers)
        ),
        "leaves updates without a bound on their norm, which masks need "
        "(secure_aggregation.protocol: masks); use received",
    ),
    Pair(
        "training.proximal_center",
        "global",
        "privacy.unit: device, unless noise is at every step",
        lambda request: (
            _pulled_global(request)
            and _noised_after_steps(request)
            and request.privacy.unit == "device"
        ),
        # A device without data stays where it is only if it is pulled to where it is.
        "moves devices without data too (privacy.unit: device); use received",
    ),
    Pair(
        "training.proximal",
        "above 0",
        "local rules of one's own, unless noise is at every step",
        lambda request: (
            request.plan.schedule.proximal > 0
            and _noised_after_steps(request)
            and request.privacy.unit != "device"
            and not isinstance(request.plan.rules.local, GradientStep)
        ),
        "is not proven together with the local rule of algorithm: {algorithm}; use 0, or noise at "
        "every step (privacy.mechanism: gradient)",
    ),
)


def _keeps(request: Request) -> bool:
    return request.keeping is not None


SLOTS = (
    Pair(
        "privacy.mechanism",
        "upload, weights",
        _KEEPING,
        lambda request: _keeps(request) and _noised_after_steps(request),
        "noises models after the steps that the local rule of algorithm: {algorithm} keeps; use "
        "gradient",
    ),
    Pair(
        "training.participation",
        "any",
        _KEEPING,
        lambda request: _keeps(request) and shown(request.joining),
        "hides who joins a round, which what the local rule of algorithm: {algorithm} keeps shows; "
        "use null",
    ),
    Pair(
        "training.estimator",
        "fixed, clipped",
        _KEEPING,
        lambda request: _keeps(request) and shown(request.weighing),
        "weighs updates, and not what the local rule of algorithm: {algorithm} keeps; use mean, "
        "and example_cap: null",
    ),
    Pair(
        "secure_aggregation.dropout",
        "above 0",
        _KEEPING,
        lambda request: (
            _keeps(request)
            and bool(request.config.secure_aggregation.layers)
            and request.config.secure_aggregation.dropout > 0
        ),
        "loses reports of what the local rule of algorithm: {algorithm} keeps; use 0",
    ),
    Pair(
        "control.enabled",
        "true",
        _KEEPING,
        lambda request: _keeps(request) and request.config.control.enabled,
        "prices no reports of what the local rule of algorithm: {algorithm} keeps; use false",
    ),
    Pair(
        "algorithm",
        "one that splits models",
        _KEEPING,
        lambda request: _keeps(request) and request.network.splits is not None,
        "splits models, whose steps are not those that the local rule of algorithm: {algorithm} "
        "keeps; use one of the two",
    ),
    Pair(
        "algorithm",
        "one whose local rule reports",
        "a server rule that does not hear",
        lambda request: (
            request.keeping is not None
            and bool(request.keeping.reports)
            and not hasattr(request.plan.rules.server, "hear")
        ),
        "has a local rule that reports and a server rule that does not hear it; valid: a server "
        "rule with hear(slots, reported)",
    ),
)


def _is_stepped(request: Request) -> bool:
    return request.training.server.rule != "average"


RULES = (
    Pair(
        "training.server.rule",
        "momentum, yogi",
        "algorithms with a server rule of their own (fedyogi, scaffold)",
        lambda request: (
            _is_stepped(request)
            and request.plan.rules.server != server_rule_of(request.training.server)
        ),
        "takes the place of the server rule that algorithm: {algorithm} has; use average",
    ),
    Pair(
        "training.server.rule",
        "momentum, yogi",
        "algorithms that average no models (fedgkt)",
        lambda request: (
            _is_stepped(request) and request.way is not None and not request.way.averaged
        ),
        "steps from an average of models, and algorithm: {algorithm} makes none; use average",
    ),
)


_shortens = partial(
    rows_where(
        lambda request: request.training.accumulated_noise is not None and request.plan.private, ""
    ),
    "training.accumulated_noise",
    "any number",
)


SHORTENED = (
    _shortens(
        lambda request: request.config.control.enabled,
        "shortens steps, which the controller (control.enabled) chooses; use null",
        "control.enabled",
    ),
    _shortens(
        lambda request: request.way is not None or request.network.splits is not None,
        "is known of whole models in local steps, not of algorithm: {algorithm}; use null",
        "algorithms that train in tiers or split models",
    ),
    _shortens(
        lambda request: adding(request.plan.rules.server) is None,
        "is known of the server rules average and momentum, not of that of algorithm: {algorithm}; "
        "use null, or one of these",
        "server rules under which noise does not add up (yogi, and one's own)",
    ),
    _shortens(
        lambda request: not isinstance(request.plan.rules.local, GradientStep),
        "is known of gradient steps, not of the local rule of algorithm: {algorithm}; use null",
        "local rules of one's own",
    ),
    _shortens(
        lambda request: (
            (request.clipping.of_models or own_code.is_own(request.privacy.mechanism))
            and {"mechanism": request.privacy.mechanism}
        ),
        "is known of noise in units of the step, drawn anew each time, which gradient and upload "
        "have, not of privacy.mechanism: {mechanism}; use null, or gradient",
        "privacy.mechanism: weights, or one's own",
    ),
    _shortens(
        lambda request: _noised_after_steps(request) and request.plan.schedule.proximal > 0,
        "shortens steps whose pull (training.proximal) has to be known before noise is calibrated; "
        "use null, or privacy.mechanism: gradient",
        "training.proximal above 0, unless noise is at every step",
    ),
)
