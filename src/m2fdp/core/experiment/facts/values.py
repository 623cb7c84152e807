"""What features ask of their own values: the lines on those that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from m2fdp.core.config import ThreatConfig
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.experiment.request import Request
from m2fdp.core.topology.network import heads_of

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
    """Nobody is distrusted who is trusted with what it reads; somebody is protected."""
    name, threat, network = run.config.algorithm, run.config.threat, run.network
    named, tree, (cloud, *servers) = set(threat.distrusted), network.tree, network.trust
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
