"""What features ask of their own values: the lines on those that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from m2fdp.core.config import ThreatConfig
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.experiment.facts.facts import has_sums
from m2fdp.core.experiment.request import Request
from m2fdp.core.models.names import SPLIT_MODELS
from m2fdp.core.privacy.mechanisms import lock_step_of
from m2fdp.core.privacy.sight import AT_CLOUD, FAR_DEVICES, PUBLIC
from m2fdp.core.topology.network import heads_of
from m2fdp.zones.super_nodes import zone_read_in_clear

# Who sees models, and nothing of single devices.
SEES_MODELS = (PUBLIC, FAR_DEVICES)
Wrong = Iterator[InputError]


def of_estimator(run: Request) -> Wrong:
    """`clipped` has a least weight."""
    if run.training.estimator == "clipped" and run.training.least_weight is None:
        text = (
            "and training.estimator: clipped belong together: W_min, of a zone's devices together"
        )
        yield InputError("training.least_weight", None, text)


def of_chance(run: Request) -> Wrong:
    """No local aggregation at or above a server whose devices send it un-noised updates."""
    # How far a difference spreads is known for weights that sum to one only.
    if not run.plan.private or run.mechanism.noises_every_step:
        return
    heads, depth = heads_of(run.network)[:, 0], run.network.tree.depth
    lowest = heads[heads < depth].min(initial=depth)
    chance = f"training.participation = {run.joining}"
    if run.joining is None:
        chance = f"training.estimator = {run.weighing}"
    for layer in sorted(layer for layer in run.plan.schedule.layers() if layer and layer >= lowest):
        text = (
            f"is not proven together with {chance} below servers that add the noise; use null, "
            "privacy.mechanism: gradient, or untrusted servers"
        )
        yield InputError("training.local_aggregation", layer, text)


def of_slots(run: Request) -> Wrong:
    """What a local rule reports, the server rule hears."""
    if run.keeping and run.keeping.reports and not hasattr(run.plan.rules.server, "hear"):
        text = (
            "has a local rule that reports and a server rule that does not hear it; valid: a "
            "server rule with hear(slots, reported)"
        )
        yield InputError("algorithm", run.config.algorithm, text)


def of_labels(run: Request) -> Wrong:
    """Of epsilon, a randomised label spends a part."""
    privacy = run.privacy
    if privacy.labels == "randomised" and privacy.label_epsilon >= privacy.epsilon:
        text = f"must be below privacy.epsilon = {privacy.epsilon:g}, which it is a part of"
        yield InputError("privacy.label_epsilon", privacy.label_epsilon, text)


def of_tiers(run: Request) -> Wrong:
    """Whole batches, tiers and modules that the model has."""
    config, training = run.config, run.training
    model, tiers = config.model.name, config.tiering.tiers
    cuts = SPLIT_MODELS.get(model, tiers)
    if run.way is not None and run.way.tiered and tiers > cuts:
        yield InputError("tiering.tiers", tiers, f"is more than {model}'s {cuts}")
    if model != "resnet" and config.clock.model != "trained":
        text = f"has other modules than model.name: {model}; use trained"
        yield InputError("clock.model", config.clock.model, text)
    if training.batch_size is not None and training.batch_size % 1 > 0:
        text = "must be whole, as batches are exact"
        yield InputError("training.batch_size", training.batch_size, text)
    if training.plateau.factor < 1 and training.evaluate_every > 1:
        text = "leaves a plateau (training.plateau.factor) rounds that it can't see; use 1"
        yield InputError("training.evaluate_every", training.evaluate_every, text)


def of_noise(run: Request) -> Wrong:
    """A mechanism that the algorithm is defined for, and that draws all noise of the network."""
    privacy, name, tree = run.privacy, run.config.algorithm, run.network.tree
    if privacy.calibration == "multiplier" and privacy.noise_multiplier is None:
        text = "noise_multiplier (z) and calibration: multiplier belong together"
        yield InputError("privacy", BLOCK, text)
    able = run.algorithm.mechanisms
    if able is not None and privacy.mechanism not in able:
        text = f"is not that of algorithm: {name}; use {', '.join(sorted(able))}"
        yield InputError("privacy.mechanism", privacy.mechanism, text)
    if not run.plan.private or not run.mechanism.noises_every_step:
        return
    head_layers = heads_of(run.network)[:, 0]
    for layer, noise in enumerate(run.network.noise):
        below = tree.ancestors[layer][head_layers < layer]
        for node in below[noise[below] > 0]:
            text = (
                f"noises every step where it leaves trusted ground, so that what "
                f"{tree.names[layer][node]} adds below that is never drawn (algorithm: {name}); "
                "use mechanism: upload"
            )
            yield InputError("privacy.mechanism", privacy.mechanism, text)
    beside = np.flatnonzero(head_layers > 0)
    if 0 < beside.size < tree.n_devices:
        text = (
            "has devices that step with the cloud, which noises their steps, beside others, such "
            f"as {tree.names[-1][beside[0]]}, that do not (algorithm: {name}); use mechanism: "
            "upload"
        )
        yield InputError("privacy.mechanism", privacy.mechanism, text)


def of_threat(run: Request) -> Wrong:
    """Nobody is distrusted who is trusted with what he reads in clear; somebody is protected."""
    name, threat, network = run.config.algorithm, run.config.threat, run.network
    named, tree, (cloud, *servers) = set(threat.distrusted), network.tree, network.trust
    zone = zone_read_in_clear(network) if run.plan.private else None
    bound = {"super_nodes", "siblings"} & (run.plan.distrusts | named)
    for kind in sorted(bound, key=lambda kind: (kind not in named, kind)):
        if zone is not None:
            text = (
                f"can't be protected from ({kind}) in zone {zone}, whose devices are its "
                "super-nodes by turns (topology.super_nodes.kind: elected) and read its messages "
                "un-noised; let devices add the noise, or use fixed"
            )
            refused = ("threat.distrusted", kind) if kind in named else ("algorithm", name)
            yield InputError(*refused, text)
    if "super_nodes" in named and not network.elected:
        text = "are elected ones (topology.super_nodes.kind: elected); fixed ones are servers"
        yield InputError("threat.distrusted", "super_nodes", text)
    # The default names whoever of both is not trusted; so do both together of servers.
    all_servers = bool(servers) and all(layer.all() for layer in servers)
    trusted = {"cloud": bool(cloud[0]), "servers": all_servers and "cloud" not in named}
    for kind in sorted(named):
        if run.plan.private and named != set(ThreatConfig().distrusted) and trusted.get(kind):
            text = (
                f"can't be bound where it is trusted with what it reads (algorithm: {name}); leave "
                "it out, or use an algorithm and topology.trust that do not trust it"
            )
            yield InputError("threat.distrusted", kind, text)
    if threat.colluding >= tree.n_devices:
        text = (
            f"leaves nobody to protect; valid: 0 to {tree.n_devices - 1}, one less than there are "
            "devices"
        )
        yield InputError("threat.colluding", threat.colluding, text)


def of_sums(run: Request) -> Wrong:
    """Sums that the cloud alone reads leave servers below it that step something to read."""
    sums, plan = run.config.secure_aggregation, run.plan
    if not has_sums(run) or sums.decode != "cloud" or plan.schedule.local_steps == 1:
        return
    if not plan.private or not run.mechanism.noises_every_step:
        return
    layers, _ = lock_step_of(run.mechanism, plan.network, plan.schedule.round_plans()).nodes.T
    if ((layers > 0) & (layers < max(sums.layers))).any():
        text = (
            "leaves trusted servers, which step together with the devices below them, nothing that "
            "they can read; use parent, privacy.mechanism: upload, or one local step"
        )
        yield InputError("secure_aggregation.decode", sums.decode, text)


def of_control(run: Request) -> Wrong:
    """Local aggregations at layer 1, and as many steps as the rounds have room for."""
    control, schedule = run.config.control, run.plan.schedule
    for layer in schedule.local_aggregation:
        if layer > 1:
            text = "is a layer that the controller does not aggregate at; valid: 1"
            yield InputError("training.local_aggregation", layer, text)
    room = schedule.rounds * control.max_local_steps
    if control.gap == "mechanism" and control.tau is not None and control.tau > room:
        text = (
            f"is more than training.rounds = {schedule.rounds} rounds of control.max_local_steps = "
            f"{control.max_local_steps} have room for"
        )
        yield InputError("control.tau", control.tau, text)


def of_membership(run: Request) -> Wrong:
    """An observer that sees models, and no more."""
    observer = run.config.attack.observer
    if observer not in (None, *SEES_MODELS):
        text = (
            "reads more than models, which is all that lira judges by: use public, far_devices or "
            "null here, or test what it is promised with --pipelines=audit"
        )
        yield InputError("attack.observer", observer, text)


def of_reconstruction(run: Request) -> Wrong:
    """A round of the run, and an observer that is not trusted anyway."""
    attack, rounds = run.config.attack, run.plan.schedule.rounds
    observer = attack.observer or AT_CLOUD
    if attack.round > rounds:
        yield InputError("attack.round", attack.round, f"is none of training.rounds = {rounds}")
    if observer == AT_CLOUD and run.network.trust[0][0]:
        text = (
            f"is trusted by algorithm: {run.config.algorithm}; use trusted_servers, or who gets "
            "its broadcasts, such as far_devices"
        )
        yield InputError("attack.observer", observer, text)
