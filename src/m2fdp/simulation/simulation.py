"""What is simulated: everything that determines a run's results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from m2fdp.errors import InputError
from m2fdp.models.registry import Model
from m2fdp.privacy.mechanisms import Protection
from m2fdp.simulation.clipping import ClipFactor, bounded, flat_clip
from m2fdp.simulation.local_rules import (
    KEEPING_MEMBERS,
    RULE_MEMBERS,
    GradientStep,
    LocalRule,
    OwnRule,
    is_known,
    keeping,
)
from m2fdp.simulation.minibatches import Shards
from m2fdp.simulation.process import Process
from m2fdp.simulation.server_rules import ServerRule, TakeAggregate
from m2fdp.simulation.splits import Splits
from m2fdp.simulation.survivors import SumRules
from m2fdp.simulation.workers import Workers
from m2fdp.streams import Randomness
from m2fdp.topology.network import Network


@dataclass(frozen=True)
class Rules:
    """What an algorithm may do its own way, whatever the network.

    Attributes:
        local: one local step.
        server: the step from the aggregate to the next global model.
        clip_factor: how norms are bounded; one's own sees each alone, see `clipping.OneByOne`.
    """

    local: LocalRule = GradientStep()
    server: ServerRule = TakeAggregate()
    clip_factor: ClipFactor = flat_clip

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_factor", bounded(self.clip_factor))
        if not is_known(self.local) and type(self.local) is not OwnRule:
            local = OwnRule(self.local, type(self.local).__qualname__)
            object.__setattr__(self, "local", local)

    def named(self, algorithm: str) -> Rules:
        """The rules, whose errors name the algorithm that brings them.

        Raises:
            InputError: a local rule of the user's own is none.
        """
        if not isinstance(self.local, OwnRule):
            return self
        members = (*RULE_MEMBERS, *(KEEPING_MEMBERS if keeping(self.local) else ()))
        lacking = [name for name in members if not hasattr(self.local.rule, name)]
        if lacking:
            problem = f"has a local rule without {lacking[0]}; valid: {', '.join(members)}"
            raise InputError("algorithm", algorithm, problem)
        return replace(self, local=replace(self.local, name=algorithm))


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
