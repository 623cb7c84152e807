"""What is simulated: everything that determines a run's results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.engine.process import Process
from m2fdp.core.engine.rules import Rules
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Protection
from m2fdp.core.streams import Randomness
from m2fdp.core.topology.network import Network
from m2fdp.processes.workers import Workers
from m2fdp.secure_aggregation.survivors import SumRules
from m2fdp.tiers.split_steps import Splits


@dataclass(frozen=True, eq=False)
class Simulation:
    """A run, up to when its rounds happen and how its steps are executed.

    Attributes:
        networks: networks that differ in who takes part only; a round's plan names its own.
        mechanisms: one for each network.
        randomness: its noise must not be that of another simulation, nor of other records.
        sums: how sums come about that hide their terms.
        splits: who splits the model, which is then a `SplitModel`; None = nobody.
    """

    networks: tuple[Network, ...]
    mechanisms: tuple[Protection, ...]
    model: Model
    shards: Shards
    randomness: Randomness
    rules: Rules = Rules()
    sums: SumRules = SumRules()
    splits: Splits | None = None


class Execution(Protocol):
    """The means that a simulation is executed by."""

    @property
    def workers(self) -> Workers:
        """The processes that share the work."""


class SimulationProcess(Process, Protocol):
    """How the rounds of a simulation are computed."""

    @property
    def simulation(self) -> Simulation:
        """What is simulated."""

    @property
    def executor(self) -> Execution:
        """How it is executed."""

    @property
    def draws(self) -> frozenset[str]:
        """Which noises of the mechanisms its rounds draw, by the names of `Noise`."""
