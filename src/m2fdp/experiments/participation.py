"""What can't be of devices that join rounds by chance, and of how their updates are summed."""

from __future__ import annotations

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.errors import InputError
from m2fdp.privacy.mechanisms import get_mechanism
from m2fdp.topology.network import heads_of


def check_participation(config: Config, plan: Plan) -> None:
    """Refuse what contradicts itself, or is not proven, before anything is computed.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    _check_estimator(config)
    if plan.network.participation is None:
        return
    training, key = config.training, "training.participation"
    value: object = training.participation
    if value is None:
        key, value = "training.estimator", training.estimator
    if training.participants is not None:
        raise InputError(
            "training.participants",
            training.participants,
            f"is so many of each lowest server's devices, and {key} = {value} has rules of its "
            "own; use null",
        )
    if config.control.enabled:
        raise InputError(
            key, value, "is nothing that the controller (control.enabled) prices; use null, or mean"
        )
    depth = plan.network.tree.depth
    if plan.network.chance is not None and depth in plan.network.sums.layers:
        raise InputError(
            "secure_aggregation.layers",
            depth,
            f"are devices that join by chance ({key} = {value}), of whom too few may come for a "
            "sum; use layers of servers",
        )
    if not plan.private:
        return
    if config.privacy.calibration == "paper":
        raise InputError(
            key,
            value,
            "is nothing that privacy.calibration: paper knows (Prop. 1 is for means over all); "
            "use calibration: accountant",
        )
    _check_local_aggregation(config, plan, key, value)


def _check_estimator(config: Config) -> None:
    training = config.training
    weighed = training.estimator != "mean"
    if weighed and config.privacy.unit != "device":
        raise InputError(
            "training.estimator",
            training.estimator,
            "weighs whole updates of devices (privacy.unit: device); use mean",
        )
    if training.example_cap is not None and not weighed:
        raise InputError(
            "training.example_cap",
            training.example_cap,
            "weighs devices by their records, for training.estimator: fixed or clipped; use null",
        )
    if (training.estimator == "clipped") != (training.least_weight is not None):
        raise InputError(
            "training.least_weight",
            training.least_weight,
            "and training.estimator: clipped belong together: W_min, of a zone's devices together",
        )
    gradient = get_mechanism(config.privacy.mechanism).noises_every_step
    if training.estimator == "clipped" and gradient:
        raise InputError(
            "training.estimator",
            "clipped",
            "divides whole updates (privacy.mechanism: upload); use fixed",
        )


def _check_local_aggregation(config: Config, plan: Plan, key: str, value: object) -> None:
    """Below a head whose devices send it un-noised updates, how far a difference spreads is known
    for weights that sum to one only."""
    network = plan.network
    if get_mechanism(config.privacy.mechanism).noises_every_step:
        return
    head_layers = heads_of(network)[:, 0]
    for layer in sorted({layer or 0 for layer in plan.schedule.layers()} - {0}):
        if (head_layers[head_layers < network.tree.depth] <= layer).any():
            raise InputError(
                "training.local_aggregation",
                layer,
                f"is not proven together with {key} = {value} below servers that add the noise; "
                "use null, privacy.mechanism: gradient, or untrusted servers",
            )
