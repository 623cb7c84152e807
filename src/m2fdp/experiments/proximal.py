"""What can't be of steps with a proximal term (`training.proximal`)."""

from __future__ import annotations

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.errors import InputError
from m2fdp.privacy.mechanisms import get_mechanism
from m2fdp.schedule.rounds import check_pull
from m2fdp.simulation.local_rules import GradientStep, keeping


def check_proximal(config: Config, plan: Plan) -> None:
    """Refuse what contradicts itself, or is not proven, before anything is computed.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    proximal, local = config.training.proximal, plan.rules.local
    if not proximal:
        return
    if not config.control.enabled:  # which chooses step sizes, and checks them, as it goes
        check_pull(proximal, plan.schedule.step_size(1))
    if local.anchored and config.training.proximal_center == "global":
        _refuse_center(
            config, f"is not what the local rule of algorithm: {config.algorithm} is anchored at"
        )
    if config.secure_aggregation.protocol == "masks" and config.secure_aggregation.layers:
        _refuse_center(
            config,
            "leaves updates without a bound on their norm, which masks need "
            "(secure_aggregation.protocol: masks)",
        )
    if plan.private and not get_mechanism(config.privacy.mechanism).noises_every_step:
        _check_spread(config, plan)


def _check_spread(config: Config, plan: Plan) -> None:
    """How far two runs part under the pull is known of plain steps alone."""
    if config.privacy.unit == "device":
        # A device without data stays where it is only if it is pulled to where it is.
        _refuse_center(config, "moves devices without data too (privacy.unit: device)")
    elif not isinstance(plan.rules.local, GradientStep):
        raise InputError(
            "training.proximal",
            config.training.proximal,
            f"is not proven together with the local rule of algorithm: {config.algorithm}; use 0, "
            "or noise at every step (privacy.mechanism: gradient)",
        )


def _refuse_center(config: Config, why: str) -> None:
    if config.training.proximal_center == "global":
        raise InputError("training.proximal_center", "global", f"{why}; use received")


def check_plain_steps(config: Config, plan: Plan) -> None:
    """Refuse bounds on convergence that are those of plain steps.

    Raises:
        InputError: steps have a proximal term, or are corrected by what devices keep.
    """
    if keeping(plan.rules.local) is not None:
        raise InputError(
            "algorithm",
            config.algorithm,
            "steps by what devices keep, which bounds on convergence know nothing of; use m2fdp",
        )
    if config.training.proximal:
        raise InputError(
            "training.proximal",
            config.training.proximal,
            "is no part of what the bounds on convergence hold for; use 0",
        )
