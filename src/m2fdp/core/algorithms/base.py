"""What an algorithm is: a choice of network, noise, schedule and rules over one process."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from m2fdp.core.blocks import Block
from m2fdp.core.config import Config
from m2fdp.core.engine.rules import ProximalStep, Rules
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted
from m2fdp.core.own_code import GIVEN
from m2fdp.core.schedule.schedule import Schedule, check_schedule
from m2fdp.core.topology.network import Network, check_network, exposed_devices
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import Trust


class NoOptions(Block):
    """Of an algorithm that has none."""


@dataclass(frozen=True, eq=False)
class Given:
    """What a configuration gives an algorithm.

    Attributes:
        tree, trust, schedule: as configured.
        options: the configuration's `options`, as the algorithm's own block.
        config: the whole configuration.
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
        name: its name in configurations.
        title: its name in tables and figures.
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
        """Refuse private plans where the algorithm's rounds draw no noise.

        Args:
            name: the algorithm's name in the configuration, for errors.

        Raises:
            InputError: they draw none.
        """


_PARTS = {"network": Network, "schedule": Schedule, "private": bool, "rules": Rules}


def checked_plan(name: str, algorithm: Algorithm, plan: object) -> Plan:
    """The plan that an algorithm has made, once nothing speaks against it.

    Checks read the plan, as the engine will run it, and never the configuration that it came from.
    The ledger takes its premises from the same objects.

    Args:
        name: the algorithm's name in the configuration, for errors.

    Returns:
        The plan, whose schedule tells the pull of every proximal term.

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
