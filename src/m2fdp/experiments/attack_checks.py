"""What can't be attacked, found before anything is computed."""

from __future__ import annotations

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.data.features.mapping import PIXELS
from m2fdp.errors import InputError
from m2fdp.experiments.checks import check_equal_rounds
from m2fdp.privacy.sight import AT_CLOUD, FAR_DEVICES, PUBLIC
from m2fdp.simulation.local_rules import keeping

# Who sees models, and nothing of single devices.
SEES_MODELS = (PUBLIC, FAR_DEVICES)


def check_attack(config: Config, plan: Plan) -> None:
    """Refuse attacks that are not defined for a run.

    Raises:
        InputError: naming the key.
    """
    check_equal_rounds(config, plan)
    if config.attack.method == "lira":
        _check_lira(config)
    else:
        _check_reconstruction(config, plan)


def _check_lira(config: Config) -> None:
    observer = config.attack.observer
    if observer is not None and observer not in SEES_MODELS:
        raise InputError(
            "attack.observer",
            observer,
            "reads more than models, which is all that lira judges by: use public, far_devices or "
            "null here, or test what it is promised with --pipelines=audit",
        )


def _check_reconstruction(config: Config, plan: Plan) -> None:
    attack, training, sums = config.attack, config.training, config.secure_aggregation
    if keeping(plan.rules.local) is not None:
        raise InputError(
            "algorithm",
            config.algorithm,
            "steps by what devices keep, which attacks on messages do not take out of them; use "
            "another, or attack.method: lira",
        )
    observer = attack.observer or AT_CLOUD
    if attack.round > training.rounds:
        raise InputError(
            "attack.round", attack.round, f"is none of training.rounds = {training.rounds}"
        )
    if training.participants is not None:
        raise InputError(
            "training.participants",
            training.participants,
            "leaves open who is in a message that is to be reconstructed; use null",
        )
    if sums.layers and sums.protocol == "masks":
        raise InputError(
            "secure_aggregation.protocol",
            sums.protocol,
            "makes the same sums up to a grid, and attacks read them as they are; use ideal",
        )
    if sums.layers and sums.dropout > 0:
        raise InputError(
            "secure_aggregation.dropout",
            sums.dropout,
            "leaves open who is in a sum that is to be reconstructed; use 0",
        )
    if config.topology.super_nodes.kind == "elected":
        raise InputError(
            "topology.super_nodes.kind",
            "elected",
            "gives devices the messages of others by turns; attack what super-nodes read as "
            "fixed, with attack.observer: servers",
        )
    if config.features.map != PIXELS:
        raise InputError(
            "features.map",
            config.features.map,
            "has no pixels that could be reconstructed; use pixels, or attack.method: lira",
        )
    if observer == AT_CLOUD and plan.network.trust[0][0]:
        raise InputError(
            "attack.observer",
            observer,
            f"is trusted by algorithm: {config.algorithm}; use trusted_servers, or who gets its "
            "broadcasts, such as far_devices",
        )
