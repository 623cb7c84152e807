"""What an algorithm is: a choice of network, noise and schedule over one engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.network import Network
from m2fdp.topology.tree import Tree
from m2fdp.topology.trust import Trust


@dataclass(frozen=True, eq=False)
class Plan:
    """How one algorithm runs.

    Attributes:
        network: the tree it trains over, the trust it assumes and the messages it noises.
        schedule: when it steps and aggregates.
        private: whether it clips and noises at all.
    """

    network: Network
    schedule: Schedule
    private: bool


@dataclass(frozen=True)
class Algorithm:
    """An algorithm by name.

    Attributes:
        name: in configurations.
        title: in tables and figures.
        role: `method`, or `baseline` that methods are compared with.
        plan: (given tree, given trust, configured schedule) -> its plan.
    """

    name: str
    title: str
    role: Literal["baseline", "method"]
    plan: Callable[[Tree, Trust, Schedule], Plan]
