"""What an algorithm is: a choice of network, noise, schedule and rules over one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from m2fdp.core.config import Block, Config
from m2fdp.core.engine.rules import Rules
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network
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
        distrusts: kinds of observers that its promise binds whatever `threat` says, by the names
            of `threat.distrusted`.
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
