"""The rules that an algorithm brings: of a local step, of the server, and of clipping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from m2fdp.core.engine.clipping import ClipFactor, bounded, flat_clip
from m2fdp.core.engine.lengths import any_length
from m2fdp.core.engine.local_rules import (
    KEEPING_MEMBERS,
    RULE_MEMBERS,
    GradientStep,
    LocalRule,
    OwnRule,
    is_known,
    keeping,
)
from m2fdp.core.engine.server_rules import ServerRule, TakeAggregate
from m2fdp.core.errors import InputError


@dataclass(frozen=True)
class Rules:
    """What an algorithm may do its own way, whatever the network.

    Attributes:
        local: one local step.
        server: the step from the aggregate to the next global model.
        clip_factor: how norms are bounded; one's own sees each alone, see `clipping.OneByOne`.
        longest: the length that a model may have before a local step of size eta, which is noised,
            lest rounding tells of a record.
        longest_received: that of a model that servers broadcast within a round, where all that it
            follows from is noised.
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
        """The rules, by which nobody takes a step of a model that is too long.

        Args:
            longest: the length that a model may have at a step of size eta.
            noised: whether every step is. Else models between two steps are none that one may look
                at: where training ends would tell of them.
        """
        rules = replace(self, longest_received=longest)
        if noised:
            rules = replace(rules, longest=longest)
        if not isinstance(rules.local, OwnRule):
            return rules
        return replace(rules, local=replace(rules.local, longest=longest))

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
