"""The rules that an algorithm brings: of a local step, of the server, and of clipping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from m2fdp.core.engine.clipping import ClipFactor, bounded, flat_clip
from m2fdp.core.engine.lengths import any_length
from m2fdp.core.engine.local_rules import GradientStep, LocalRule, OwnRule, is_known, keeping
from m2fdp.core.engine.server_rules import ServerRule, TakeAggregate
from m2fdp.core.errors import InputError


@dataclass(frozen=True)
class Rules:
    """What an algorithm may do its own way, whatever the network.

    Attributes:
        local: one local step.
        server: the step from the aggregate to the next global model.
        clip_factor: factor that bounds norms; a user's own sees one at a time (`OneByOne`).
        longest: length that a model may have before a noised local step of size eta. Rounding a
            longer one could reveal a record.
        longest_received: the same of a noised model that servers broadcast within a round.
    """

    local: LocalRule = GradientStep()
    server: ServerRule = TakeAggregate()
    clip_factor: ClipFactor = flat_clip
    longest: Callable[[float], float] = any_length
    longest_received: Callable[[float], float] = any_length

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_factor", bounded(self.clip_factor))
        if not is_known(self.local) and type(self.local) is not OwnRule:
            local = OwnRule(self.local, type(self.local).__qualname__)
            object.__setattr__(self, "local", local)

    def within(self, longest: Callable[[float], float], noised: bool) -> Rules:
        """The rules with a longest length of a model at a step of size eta.

        Args:
            noised: whether every step is noised. Else nothing may depend on the length of models
                between two steps: the end of training would reveal it.
        """
        local = self.local
        return replace(
            self,
            longest_received=longest,
            longest=longest if noised else self.longest,
            local=replace(local, longest=longest) if isinstance(local, OwnRule) else local,
        )

    def named(self, algorithm: str) -> Rules:
        """The rules, with the algorithm's name for errors.

        Raises:
            InputError: a user's own local rule lacks a member.
        """
        if not isinstance(self.local, OwnRule):
            return self
        slots = ("reports", "first", "of", "report") if keeping(self.local) else ()
        members = ("anchored", "step", *slots)
        lacking = [name for name in members if not hasattr(self.local.rule, name)]
        if lacking:
            problem = f"has a local rule without {lacking[0]}; valid: {', '.join(members)}"
            raise InputError("algorithm", algorithm, problem)
        return replace(self, local=replace(self.local, name=algorithm))
