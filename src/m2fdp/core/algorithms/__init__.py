"""What an algorithm is: a choice of network, noise, schedule and rules over one process. Each is a
small file, which sets tree, trust, noise, schedule and rules."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from m2fdp.core import own_code
from m2fdp.core.blocks import Block
from m2fdp.core.config import Config, ServerConfig
from m2fdp.core.engine.rules import ProximalStep, Rules, TakeAggregate, server_rule_of
from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import counted
from m2fdp.core.own_code import GIVEN
from m2fdp.core.rooms import Catalogue, brought
from m2fdp.core.schedule.schedule import Schedule, build_schedule, check_schedule
from m2fdp.core.topology.builders import build_tree
from m2fdp.core.topology.network import Network, check_network, exposed_devices, joined_by_chance
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import Trust, build_trust


class NoOptions(Block):
    """Of an algorithm that has none."""


@dataclass(frozen=True, eq=False)
class Given:
    """What a configuration gives an algorithm.

    Attributes:
        tree, trust, schedule: as configured.
        options: the configuration's `options`, as the algorithm's own block.
    """

    tree: Tree
    trust: Trust
    schedule: Schedule
    options: Block = field(default_factory=NoOptions)
    config: Config = field(default_factory=Config)

    @property
    def seed(self) -> int:
        """Seed of the run, for what an algorithm draws."""
        return self.config.seed


@dataclass(frozen=True, eq=False)
class Plan:
    """How one algorithm runs.

    Attributes:
        network: the tree it trains over, the trust it assumes, and who adds noise.
        schedule: its steps and aggregations.
        private: whether it clips and noises at all.
        rules: its local steps, what the cloud makes of an aggregate, how norms are bounded.
        distrusts: names of observers that its promise binds, besides `threat.distrusted`.
    """

    network: Network
    schedule: Schedule
    private: bool
    rules: Rules = Rules()
    distrusts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Algorithm:
    """An algorithm by name. Rooms have subclasses, with what they ask of theirs.

    Attributes:
        name, title: its name in configurations, and in tables and figures.
        role: `method`, or `baseline` that methods are compared with.
        plan: the function from what is given to its plan.
        controllable: whether a controller may choose its rounds (`control.enabled`).
        options: the block that checks the configuration's `options`.
        mechanisms: the names of those that it is defined for; None = any.
    """

    name: str
    title: str
    role: Literal["baseline", "method"]
    plan: Callable[[Given], Plan]
    controllable: bool = False
    options: type[Block] = NoOptions
    mechanisms: frozenset[str] | None = None

    def check_private(self, name: str) -> None:
        """Refuse private plans of an algorithm, by its configured name, whose rounds draw no noise.

        Raises:
            InputError: they draw none.
        """


_PARTS = {"network": Network, "schedule": Schedule, "private": bool, "rules": Rules}


def checked_plan(name: str, algorithm: Algorithm, plan: object) -> Plan:
    """The plan that an algorithm has made, once nothing speaks against it; its schedule tells the
    pull of every proximal term.

    Checks read the plan, as the engine will run it, and never the configuration that it came from.
    The ledger takes its premises from the same objects.

    Raises:
        InputError: a part can't be run, or noise leaves a device in clear or is not drawn.
    """
    if type(plan) is not Plan:
        raise InputError("algorithm", name, f"must plan a Plan, not {type(plan).__name__}")
    for part, kind in _PARTS.items():
        # No subclass either: what it overrides is code, and checks read the attributes.
        if type(value := getattr(plan, part)) is not kind:
            problem = f"plans {part} of type {type(value).__name__}; valid: {kind.__name__}"
            raise InputError("algorithm", name, problem)
    plan = _with_its_pull(name, plan)

    def refuse(attribute: str, value: object, problem: str) -> InputError:
        return InputError("algorithm", name, f"plans Schedule.{attribute} = {value!r}, {problem}")

    check_schedule(plan.schedule, plan.network.tree.depth, refuse)
    check_network(name, plan.network)
    if plan.private:
        algorithm.check_private(name)
        _check_noise(name, plan.network)
    return replace(plan, rules=GIVEN["rules"](plan.rules, name, plan.private))


def _with_its_pull(name: str, plan: Plan) -> Plan:
    """The plan whose schedule tells the pull of a `ProximalStep`: ledger and checks look there."""
    rule = plan.rules.local
    if type(rule) is not ProximalStep:
        return plan
    if plan.schedule.proximal or type(rule.local) is ProximalStep:
        problem = "plans two proximal terms; valid: one, ProximalStep or Schedule.proximal"
        raise InputError("algorithm", name, problem)
    schedule = replace(plan.schedule, proximal=rule.mu, center="received")
    return replace(plan, schedule=schedule, rules=replace(plan.rules, local=rule.local))


def _check_noise(name: str, network: Network) -> None:
    """Refuse a device in clear: before an untrusted server reads of it, somebody adds noise."""
    exposed = np.flatnonzero(exposed_devices(network))
    if exposed.size:
        raise InputError(
            "algorithm",
            name,
            f"is private, but {counted(exposed.size, 'device')}, such as "
            f"{network.tree.names[-1][exposed[0]]}, would reach an untrusted server without noise; "
            "noise_plan(tree, trust) places it where it belongs",
        )


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
        problem = f"is more than the devices of any lowest server, at most {most}; null means all"
        raise InputError("training.participants", participants, problem)
    if planned.depth == tree.depth:
        return participants
    return int(Network(tree, trust, (), participants).present.sum())  # a star: as many in all


def _plan_of(name: str, given: Given) -> Plan:
    algorithm = get_algorithm(name)
    own = own_code.guarded("algorithm", name, "can't plan")
    with own if own_code.is_own(name) else nullcontext():
        plan = algorithm.plan(given)
    return checked_plan(name, algorithm, plan)
