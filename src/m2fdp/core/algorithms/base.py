"""What an algorithm is: a choice of network, noise, schedule and rules over one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from m2fdp.core.blocks import Block
from m2fdp.core.engine.rules import Rules
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import Trust
from m2fdp.tiers.ways import Way


class NoOptions(Block):
    """Of an algorithm that has none."""


@dataclass(frozen=True, eq=False)
class Given:
    """What a configuration gives an algorithm.

    Attributes:
        tree, trust, schedule: as configured.
        options: the configuration's `options`, as the algorithm's own block.
        seed: seed of the run, for what an algorithm draws.
        zones: the configured block, for an algorithm that is `zoned`.
        tiering: the configured block, for one that trains in tiers.
        epochs: epochs of a device in a round, for one that trains in epochs.
    """

    tree: Tree
    trust: Trust
    schedule: Schedule
    options: Block = field(default_factory=NoOptions)
    seed: int = 0
    zones: Any = None
    tiering: Any = None
    epochs: int = 1


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
    """An algorithm by name.

    Attributes:
        name: its name in configurations.
        title: its name in tables and figures.
        role: `method`, or `baseline` that methods are compared with.
        plan: the function from what is given to its plan.
        controllable: whether a controller may choose its rounds (`control.enabled`).
        options: the block that checks the configuration's `options`.
        zoned: whether it reads the configuration's `zones`.
        in_zones: whether it is one of H's, of which a run tells what the observers of its zones
            learn.
        tiers: how its devices train in epochs of their own on a star, one of `m2fdp.tiers.ways`;
            None = local steps on the tree.
        mechanisms: the names of those that it is defined for; None = any.
    """

    name: str
    title: str
    role: Literal["baseline", "method"]
    plan: Callable[[Given], Plan]
    controllable: bool = False
    options: type[Block] = NoOptions
    zoned: bool = False
    in_zones: bool = False
    tiers: Way | None = None
    mechanisms: frozenset[str] | None = None
