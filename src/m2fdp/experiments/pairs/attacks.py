"""What can't be audited, bounded or attacked."""

from __future__ import annotations

from collections.abc import Mapping

from m2fdp.config import PIXELS
from m2fdp.experiments.pairs.base import Pair, rows_where, shown
from m2fdp.experiments.request import Request
from m2fdp.privacy.sight import AT_CLOUD, FAR_DEVICES, PUBLIC

# Who sees models, and nothing of single devices.
SEES_MODELS = (PUBLIC, FAR_DEVICES)
_MADE_FOR = "audit, bound and attack are made for rounds that are all alike; use "
_THREE = "pipelines audit, bound and attack"
_WHOLE = "pipelines audit, bound and attack, of whole models"

# Of runs that are audited, bounded or attacked.
EQUAL_ROUNDS = (
    Pair(
        "algorithm",
        "those that train in tiers",
        _THREE,
        lambda request: request.way is not None,
        f"{_MADE_FOR}one of local steps",
    ),
    Pair(
        "control.enabled",
        "true",
        _THREE,
        lambda request: request.config.control.enabled,
        f"{_MADE_FOR}false",
    ),
    Pair(
        "partition.held_out_by",
        "devices",
        _THREE,
        lambda request: request.config.partition.held_out_by == "devices",
        f"{_MADE_FOR}cloud",
    ),
    Pair(
        "training.participation",
        "any",
        _THREE,
        lambda request: shown(request.joining),
        f"{_MADE_FOR}null",
    ),
    Pair(
        "training.estimator",
        "fixed, clipped",
        _THREE,
        lambda request: shown(request.weighing),
        f"{_MADE_FOR}mean",
    ),
    Pair(
        "algorithm",
        "those that split models",
        _WHOLE,
        lambda request: request.network.splits is not None,
        "splits its model, and audit, bound and attack are made for whole ones; its ledger below "
        "trusted servers is that of m2fdp, which can be audited",
    ),
)

# Of bounds on convergence, which are those of plain steps.
PLAIN_STEPS = (
    Pair(
        "algorithm",
        "those whose local rule keeps something of devices (scaffold)",
        "pipeline bound",
        lambda request: request.keeping is not None,
        "steps by what devices keep, which bounds on convergence know nothing of; use m2fdp",
    ),
    Pair(
        "training.server.rule",
        "momentum, yogi",
        "pipeline bound",
        lambda request: request.training.server.rule != "average",
        "is no part of what the bounds on convergence hold for; use average",
    ),
    Pair(
        "training.proximal",
        "above 0",
        "pipeline bound",
        lambda request: request.plan.schedule.proximal > 0,
        "is no part of what the bounds on convergence hold for; use 0",
    ),
    Pair(
        "privacy.mechanism",
        "weights",
        "pipeline bound",
        lambda request: request.clipping.of_models,
        "clips models, and the bounds on convergence are those of clipped steps; use gradient or "
        "upload",
    ),
)


_reconstructing = rows_where(
    lambda request: request.config.attack.method != "lira", "attack.method: all but lira"
)


def _after_the_last(request: Request) -> Mapping[str, object] | None:
    rounds = request.plan.schedule.rounds
    return {"rounds": rounds} if request.config.attack.round > rounds else None


def _of_trusted_cloud(request: Request) -> Mapping[str, object] | None:
    observer = request.config.attack.observer or AT_CLOUD
    trusted = observer == AT_CLOUD and request.network.trust[0][0]
    return {"shown": observer} if trusted else None


# Of runs that are attacked.
ATTACKS = (
    Pair(
        "attack.observer",
        f"all but {', '.join(SEES_MODELS)}",
        "attack.method: lira",
        lambda request: (
            request.config.attack.method == "lira"
            and request.config.attack.observer not in (None, *SEES_MODELS)
        ),
        "reads more than models, which is all that lira judges by: use public, far_devices or null "
        "here, or test what it is promised with --pipelines=audit",
    ),
    _reconstructing(
        "algorithm",
        "those whose local rule keeps something of devices (scaffold)",
        lambda request: request.keeping is not None,
        "steps by what devices keep, which attacks on messages do not take out of them; use "
        "another, or attack.method: lira",
    ),
    _reconstructing(
        "attack.round",
        "above training.rounds",
        _after_the_last,
        "is none of training.rounds = {rounds}",
        "training.rounds",
    ),
    _reconstructing(
        "training.participants",
        "any number",
        lambda request: shown(request.participants),
        "leaves open who is in a message that is to be reconstructed; use null",
    ),
    _reconstructing(
        "secure_aggregation.protocol",
        "masks",
        lambda request: (
            bool(request.config.secure_aggregation.layers)
            and request.config.secure_aggregation.protocol == "masks"
        ),
        "makes the same sums up to a grid, and attacks read them as they are; use ideal",
    ),
    _reconstructing(
        "secure_aggregation.dropout",
        "above 0",
        lambda request: (
            bool(request.config.secure_aggregation.layers)
            and request.config.secure_aggregation.dropout > 0
        ),
        "leaves open who is in a sum that is to be reconstructed; use 0",
    ),
    _reconstructing(
        "topology.super_nodes.kind",
        "elected",
        lambda request: request.config.topology.super_nodes.kind == "elected",
        "gives devices the messages of others by turns; attack what super-nodes read as fixed, "
        "with attack.observer: servers",
    ),
    _reconstructing(
        "features.map",
        f"all but {PIXELS}",
        lambda request: request.config.features.map != PIXELS,
        "has no pixels that could be reconstructed; use pixels, or attack.method: lira",
    ),
    _reconstructing(
        "attack.observer",
        "cloud, null",
        _of_trusted_cloud,
        "is trusted by algorithm: {algorithm}; use trusted_servers, or who gets its broadcasts, "
        "such as far_devices",
        "a network that trusts the cloud",
    ),
)
