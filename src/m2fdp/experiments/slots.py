"""What can't be of a local rule that keeps something of every device from round to round."""

from __future__ import annotations

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.errors import InputError
from m2fdp.privacy.mechanisms import get_mechanism
from m2fdp.simulation.local_rules import keeping


def check_slots(config: Config, plan: Plan) -> None:
    """Refuse what contradicts itself, or is not proven, before anything is computed.

    Raises:
        InputError: naming the key, its value and what would be valid.
    """
    rule, training, sums = keeping(plan.rules.local), config.training, config.secure_aggregation
    if rule is None:
        return
    keeps = f"the local rule of algorithm: {config.algorithm} keeps"
    mechanism = config.privacy.mechanism
    for wrong, key, value, problem in (
        (
            plan.private and not get_mechanism(mechanism).noises_every_step,
            "privacy.mechanism",
            mechanism,
            f"noises models after the steps that {keeps}; use gradient",
        ),
        (
            training.participation is not None,
            "training.participation",
            training.participation,
            f"hides who joins a round, which what {keeps} shows; use null",
        ),
        (
            plan.network.participation is not None,
            "training.estimator",
            training.estimator,
            f"weighs updates, and not what {keeps}; use mean, and example_cap: null",
        ),
        (
            sums.layers and sums.dropout > 0,
            "secure_aggregation.dropout",
            sums.dropout,
            f"loses reports of what {keeps}; use 0",
        ),
        (
            config.control.enabled,
            "control.enabled",
            True,
            f"prices no reports of what {keeps}; use false",
        ),
        (
            plan.network.splits is not None,
            "algorithm",
            config.algorithm,
            f"splits models, whose steps are not those that {keeps}; use one of the two",
        ),
        (
            rule.reports and not hasattr(plan.rules.server, "hear"),
            "algorithm",
            config.algorithm,
            "has a local rule that reports and a server rule that does not hear it; valid: a "
            "server rule with hear(slots, reported)",
        ),
    ):
        if wrong:
            raise InputError(key, value, problem)
