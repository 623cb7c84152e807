"""Algorithms, one small file each: how it sets tree, trust, noise, schedule and rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from m2fdp import own_code
from m2fdp.algorithms.base import Algorithm, Given, NoOptions, Plan
from m2fdp.algorithms.cdp import CDP
from m2fdp.algorithms.checking import checked_plan
from m2fdp.algorithms.dtfl import DTFL
from m2fdp.algorithms.dtfl_dp import DTFL_DP
from m2fdp.algorithms.fedavg import FEDAVG
from m2fdp.algorithms.fedgkt import FEDGKT
from m2fdp.algorithms.fedyogi import FEDYOGI
from m2fdp.algorithms.global_dp import GLOBAL_DP
from m2fdp.algorithms.hdp import HDP
from m2fdp.algorithms.hdp_mixed import HDP_MIXED
from m2fdp.algorithms.hfl import HFL
from m2fdp.algorithms.hfl_dp import HFL_DP
from m2fdp.algorithms.ldp import LDP
from m2fdp.algorithms.m2fdp import M2FDP
from m2fdp.algorithms.m2fdp_tiers import M2FDP_TIERS
from m2fdp.algorithms.pedpfl import PEDPFL
from m2fdp.algorithms.scaffold import SCAFFOLD
from m2fdp.algorithms.splitfed import SPLITFED
from m2fdp.config import Block, Config, ServerConfig, parse_block
from m2fdp.errors import InputError, among
from m2fdp.schedule.schedule import build_schedule
from m2fdp.simulation.server_rules import TakeAggregate, server_rule_of
from m2fdp.topology.builders import build_tree
from m2fdp.topology.network import Network, joined_by_chance
from m2fdp.topology.shared_noise import with_secure_sums
from m2fdp.topology.super_nodes import with_elections
from m2fdp.topology.tree import Tree
from m2fdp.topology.trust import Trust, build_trust

# In the order in which tables and figures list them.
ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        HFL,
        PEDPFL,
        HFL_DP,
        M2FDP,
        LDP,
        HDP,
        CDP,
        HDP_MIXED,
        GLOBAL_DP,
        FEDAVG,
        SPLITFED,
        FEDYOGI,
        DTFL,
        DTFL_DP,
        M2FDP_TIERS,
        FEDGKT,
        SCAFFOLD,
    )
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Given",
    "NoOptions",
    "Plan",
    "build_plan",
    "get_algorithm",
    "parse_options",
]


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
    return parse_block(get_algorithm(name).options, options, "options")


def build_plan(config: Config) -> Plan:
    """The algorithm's plan on the configured tree, trust and schedule.

    Raises:
        InputError: the blocks contradict one another, or the plan is refused (`checked_plan`).
    """
    tree = build_tree(config.topology)
    trust = build_trust(tree, config.topology.trust, config.seed)
    schedule = build_schedule(config.training, tree.depth)
    options = parse_options(config.algorithm, config.options)
    given = Given(
        tree,
        trust,
        schedule,
        options,
        config.seed,
        config.zones,
        config.tiering,
        config.training.local_epochs,
    )
    plan = _with_server_rule(_plan_of(config.algorithm, given), config.training.server)
    participants = _participants(config.training.participants, tree, trust, plan.network.tree)
    network = replace(plan.network, participants=participants) if participants else plan.network
    # Nobody has the shards yet: here none is below the cap.
    shards = np.full(network.tree.n_devices, np.inf)
    network = joined_by_chance(network, config.training, shards)
    network = with_elections(network, config.topology.super_nodes, config.threat)
    network = with_secure_sums(
        network,
        config.secure_aggregation,
        config.threat.colluding,
        plan.private,
        plan.schedule.local_aggregation,
    )
    return plan if network is plan.network else replace(plan, network=network)


def _with_server_rule(plan: Plan, server: ServerConfig) -> Plan:
    """The plan with the configured server rule, in the place of none of its own."""
    if server.rule == "average" or type(plan.rules.server) is not TakeAggregate:
        return plan
    return replace(plan, rules=replace(plan.rules, server=server_rule_of(server)))


def _participants(participants: int | None, tree: Tree, trust: Trust, planned: Tree) -> int | None:
    """How many devices of a lowest server of the algorithm's own tree take part.

    Raises:
        InputError: more than there are.
    """
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
    if own_code.is_own(name):
        with own_code.guarded("algorithm", name, "can't plan"):
            plan = algorithm.plan(given)
    else:
        plan = algorithm.plan(given)
    return checked_plan(name, algorithm, plan)
