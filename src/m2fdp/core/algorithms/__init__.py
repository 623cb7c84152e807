"""Algorithms, one small file each: how it sets tree, trust, noise, schedule and rules."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from m2fdp.core import own_code
from m2fdp.core.algorithms.base import Algorithm, Given, NoOptions, Plan, checked_plan
from m2fdp.core.blocks import Block
from m2fdp.core.config import Config, ServerConfig
from m2fdp.core.engine.rules import TakeAggregate, server_rule_of
from m2fdp.core.errors import InputError, among
from m2fdp.core.rooms import Catalogue, brought
from m2fdp.core.schedule.schedule import build_schedule
from m2fdp.core.topology.builders import build_tree
from m2fdp.core.topology.network import Network, joined_by_chance
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import Trust, build_trust

# In the order in which tables and figures list them.
ALGORITHMS: Catalogue[Algorithm] = Catalogue(
    "algorithms",
    {
        "hfl": "m2fdp.core.algorithms.hfl:HFL",
        "pedpfl": "m2fdp.core.algorithms.pedpfl:PEDPFL",
        "hfl_dp": "m2fdp.core.algorithms.hfl_dp:HFL_DP",
        "m2fdp": "m2fdp.core.algorithms.m2fdp:M2FDP",
    },
)

__all__ = ["ALGORITHMS", "Algorithm", "Given", "NoOptions", "Plan", "build_plan"]
__all__ += ["get_algorithm", "parse_options"]


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of that name, or the user's own of a name `package.module:NAME`.

    Raises:
        InputError: there is none.
    """
    if own_code.is_own(name):
        algorithm: Algorithm = own_code.load("algorithm", name, Algorithm)
        return algorithm
    if name not in ALGORITHMS:
        raise InputError(
            "algorithm",
            name,
            f"is unknown; valid are {among(name, [*ALGORITHMS, 'package.module:NAME'])}",
        )
    return ALGORITHMS[name]


def parse_options(name: str, options: Mapping[str, Any]) -> Block:
    """The configuration's `options` as the algorithm's own block.

    Raises:
        InputError: it has no such option, or not of that value.
    """
    block: Block = own_code.GIVEN["options"](get_algorithm(name).options, options, "options")
    return block


def build_plan(config: Config) -> Plan:
    """The algorithm's plan on the configured tree, trust and schedule.

    Raises:
        InputError: the blocks contradict one another, or the plan is refused (`checked_plan`).
    """
    tree = build_tree(config.topology)
    trust = build_trust(tree, config.topology, config.seed)
    schedule = build_schedule(config.training, tree.depth)
    options = parse_options(config.algorithm, config.options)
    given = Given(tree, trust, schedule, options, config)
    plan = _with_server_rule(_plan_of(config.algorithm, given), config.training.server)
    participants = _participants(config.training.participants, tree, trust, plan.network.tree)
    network = replace(plan.network, participants=participants) if participants else plan.network
    network = joined_by_chance(network, config.training)
    plan = plan if network is plan.network else replace(plan, network=network)
    for with_part in brought("planned"):
        plan = with_part(plan, config)
    return plan


def _with_server_rule(plan: Plan, server: ServerConfig) -> Plan:
    """The plan with the configured server rule, in the place of none of its own."""
    if server.rule == "average" or type(plan.rules.server) is not TakeAggregate:
        return plan
    return replace(plan, rules=replace(plan.rules, server=server_rule_of(server)))


def _participants(participants: int | None, tree: Tree, trust: Trust, planned: Tree) -> int | None:
    """How many devices of a lowest server of the algorithm's own tree take part."""
    if participants is None:
        return None
    most = int(tree.n_children(tree.depth - 1).max())
    if participants > most:
        raise InputError(
            "training.participants",
            participants,
            f"is more than the devices of any lowest server, at most {most}; null means all",
        )
    if planned.depth == tree.depth:
        return participants
    return int(Network(tree, trust, (), participants).present.sum())  # a star: as many in all


def _plan_of(name: str, given: Given) -> Plan:
    algorithm = get_algorithm(name)
    own = own_code.guarded("algorithm", name, "can't plan")
    with own if own_code.is_own(name) else nullcontext():
        plan = algorithm.plan(given)
    return checked_plan(name, algorithm, plan)
