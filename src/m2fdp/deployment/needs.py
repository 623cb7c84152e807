"""What a tree of real processes needs (`m2fdp plan`)."""

from __future__ import annotations

from m2fdp.core.algorithms import Plan, build_plan
from m2fdp.core.config import Config
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.experiment.facts import Feature, refuse
from m2fdp.core.experiment.facts import facts as a
from m2fdp.core.experiment.facts.rule import always
from m2fdp.core.experiment.request import DEPLOYMENT, Request


def check_deployment(config: Config) -> Plan:
    """Everything that can be found wrong with a run of real processes without looking at data.

    Raises:
        InputError: see `check_config`, or what no tree of processes can do.
    """
    refuse(DEPLOYED, Request(config, build_plan(config)))
    return check_config(config, frozenset({DEPLOYMENT}))


def _has_sums(run: Request) -> bool:
    return bool(run.network.sums.layers)


# fmt: off
_MASKED_SUMS = a.where("sums that no node makes in clear", "secure_aggregation.protocol", "masks")
_READ_BY_PARENTS = a.where("servers that read what they add up", "secure_aggregation.decode",
    "parent")
DEPLOYED = (
    Feature("a tree of nodes (m2fdp plan)", always,
        (a.WHOLE_MODELS, a.ADDED_STEPS, a.NOT_BY_CHANCE, a.NOT_DRAWN, a.PLAIN_MEANS, a.STEPS_APART,
         a.FIXED_SERVERS, a.KNOWN_ROUNDS, a.HELD_BY_CLOUD, a.ON_PROCESSORS)),
    Feature("a local aggregation of nodes, which keep one model,",
        lambda run: bool(run.plan.schedule.local_aggregation), (a.PULL_TO_RECEIVED,)),
    Feature("a sum of nodes", _has_sums, (_MASKED_SUMS, _READ_BY_PARENTS, a.NOBODY_SILENT)),
    Feature("a sum of nodes, which mask models,", _has_sums, (a.NOISE_AFTER_STEPS,), "[]",
        "secure_aggregation.layers"),
)
