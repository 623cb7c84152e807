"""What the promise does not go with: networks, sums, weights, and whom it binds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from m2fdp.config import ThreatConfig
from m2fdp.experiments.pairs.base import Pair
from m2fdp.experiments.request import Request
from m2fdp.privacy.mechanisms import lock_step_of
from m2fdp.simulation.local_rules import GradientStep
from m2fdp.topology.network import heads_of
from m2fdp.topology.super_nodes import zone_read_in_clear


def _not_its_own(request: Request) -> Mapping[str, object] | None:
    able = request.algorithm.mechanisms
    if able is None or request.privacy.mechanism in able:
        return None
    return {"able": ", ".join(sorted(able))}


def _noise_below_heads(request: Request) -> Mapping[str, object] | None:
    """A node that adds noise below a head, where all would have to be there at every step."""
    tree, head_layers = request.network.tree, heads_of(request.network)[:, 0]
    for layer, noise in enumerate(request.network.noise):
        below = tree.ancestors[layer][head_layers < layer]
        adding = below[noise[below] > 0]
        if adding.size:
            return {"name": tree.names[layer][adding[0]]}
    return None


def _some_with_the_cloud(request: Request) -> Mapping[str, object] | None:
    tree, head_layers = request.network.tree, heads_of(request.network)[:, 0]
    beside = np.flatnonzero(head_layers > 0)
    if not 0 < beside.size < tree.n_devices:
        return None
    return {"name": tree.names[-1][beside[0]]}


def _noises_every_step(request: Request) -> bool:
    return request.plan.private and request.mechanism.noises_every_step


def _in_clear(request: Request, from_threat: bool) -> Mapping[str, object] | None:
    """A zone whose elected super-nodes read what nobody has noised, where they must not.

    Args:
        from_threat: whether the configuration binds them, and not the algorithm.
    """
    zone = zone_read_in_clear(request.network) if request.plan.private else None
    given = set(request.config.threat.distrusted)
    for kind in sorted({"super_nodes", "siblings"} & (request.plan.distrusts | given)):
        if zone is not None and (kind in given) == from_threat:
            return {"kind": kind, "zone": zone, **({"shown": kind} if from_threat else {})}
    return None


_IN_CLEAR = (
    "can't be protected from ({kind}) in zone {zone}, whose devices are its super-nodes by turns "
    "(topology.super_nodes.kind: elected) and read its messages un-noised; let devices add the "
    "noise, or use fixed"
)


def _fixed_super_nodes(request: Request) -> Mapping[str, object] | None:
    named = "super_nodes" in request.config.threat.distrusted
    return {"shown": "super_nodes"} if named and not request.network.elected else None


def _trusted(request: Request) -> Mapping[str, object] | None:
    """Nobody is distrusted by name whom the network trusts with what he reads; the default names
    whoever of servers and cloud is not trusted, and so do both together of servers."""
    named, (cloud, *servers) = set(request.config.threat.distrusted), request.network.trust
    if not request.plan.private or named == set(ThreatConfig().distrusted):
        return None
    all_servers = bool(servers) and all(layer.all() for layer in servers)
    trusted = {"cloud": bool(cloud[0]), "servers": all_servers and "cloud" not in named}
    found = [kind for kind in sorted(named) if trusted.get(kind)]
    return {"shown": found[0]} if found else None


def _all_collude(request: Request) -> Mapping[str, object] | None:
    most = request.network.tree.n_devices - 1
    return {"most": most} if request.config.threat.colluding > most else None


PROMISE = (
    Pair(
        "privacy",
        "calibration: multiplier",
        "privacy.noise_multiplier: null",
        lambda request: (
            request.privacy.calibration == "multiplier" and request.privacy.noise_multiplier is None
        ),
        "noise_multiplier (z) and calibration: multiplier belong together",
    ),
    Pair(
        "privacy.mechanism",
        "all but those that an algorithm is defined for",
        "algorithm: global_dp",
        _not_its_own,
        "is not that of algorithm: {algorithm}; use {able}",
    ),
    Pair(
        "privacy.mechanism",
        "gradient",
        "nodes that add noise below trusted ground's edge",
        lambda request: _noises_every_step(request) and _noise_below_heads(request),
        "noises every step where it leaves trusted ground, so that what {name} adds below that is "
        "never drawn (algorithm: {algorithm}); use mechanism: upload",
    ),
    Pair(
        "privacy.mechanism",
        "gradient",
        "devices that step with the cloud beside others",
        lambda request: _noises_every_step(request) and _some_with_the_cloud(request),
        "has devices that step with the cloud, which noises their steps, beside others, such as "
        "{name}, that do not (algorithm: {algorithm}); use mechanism: upload",
    ),
    Pair(
        "threat.distrusted",
        "siblings, super_nodes",
        "topology.super_nodes.kind: elected, in zones whose devices add no noise",
        lambda request: _in_clear(request, from_threat=True),
        _IN_CLEAR,
    ),
    Pair(
        "algorithm",
        "those whose trusted cloud adds noise",
        "topology.super_nodes.kind: elected, in zones whose devices add no noise",
        lambda request: _in_clear(request, from_threat=False),
        _IN_CLEAR,
    ),
    Pair(
        "threat.distrusted",
        "super_nodes",
        "topology.super_nodes.kind: fixed",
        _fixed_super_nodes,
        "are elected ones (topology.super_nodes.kind: elected); fixed ones are servers",
    ),
    Pair(
        "threat.distrusted",
        "cloud, servers",
        "a network that trusts them",
        _trusted,
        "can't be bound where it is trusted with what it reads (algorithm: {algorithm}); leave it "
        "out, or use an algorithm and topology.trust that do not trust it",
    ),
    Pair(
        "threat.colluding",
        "as many as there are devices, and more",
        "the network",
        _all_collude,
        "leaves nobody to protect; valid: 0 to {most}, one less than there are devices",
    ),
)


def _masks_without_bounds(request: Request) -> Mapping[str, object] | None:
    sums, plan = request.config.secure_aggregation, request.plan
    bounded = plan.private and isinstance(plan.rules.local, GradientStep)
    if not sums.layers or sums.protocol != "masks" or bounded:
        return None
    why = "whose local rule is its own" if plan.private else "which clips nothing"
    return {"why": why}


def _nothing_to_read(request: Request) -> bool:
    sums, plan = request.config.secure_aggregation, request.plan
    if not sums.layers or sums.decode != "cloud" or not _noises_every_step(request):
        return False
    layers, _ = lock_step_of(request.mechanism, plan.network, plan.schedule.round_plans()).nodes.T
    between = ((layers > 0) & (layers < max(sums.layers))).any()
    return bool(between) and plan.schedule.local_steps > 1


SUMS = (
    Pair(
        "secure_aggregation.protocol",
        "masks",
        "algorithms without privacy, or with a local rule of their own",
        _masks_without_bounds,
        "needs vectors of a bounded norm, which fit a grid: not those of algorithm: {algorithm}, "
        "{why}; use ideal",
    ),
    Pair(
        "secure_aggregation.decode",
        "cloud",
        "trusted servers between, under privacy.mechanism: gradient with several local steps",
        _nothing_to_read,
        "leaves trusted servers, which step together with the devices below them, nothing that "
        "they can read; use parent, privacy.mechanism: upload, or one local step",
    ),
)
