"""What a user's own code does in a private run, and what it is trusted with.

The engine enforces what it can: where noise goes, how often a step descends, that a record's
gradient is its own, that clips clip. What is left rests on the code, and is said by its name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from m2fdp.algorithms import Plan
from m2fdp.config import Config
from m2fdp.own_code import is_ours, is_own
from m2fdp.privacy.mechanisms import get_mechanism
from m2fdp.simulation.clipping import flat_clip
from m2fdp.simulation.local_rules import OwnRule

_NOTHING_ELSE = "looks at nothing but what it is given, and keeps nothing from one call to the next"
_PUBLIC = (
    "holds nothing that was learnt from private records, "
    "and keeps nothing from one call to the next"
)


@dataclass(frozen=True)
class OwnPart:
    """One piece of a user's code.

    Attributes:
        key: key of the configuration that names it.
        name: what it is called there.
        part: what it is for.
        trusted: what epsilon rests on, as a predicate of the code.
        enforced: whether the engine enforces all the rest; else epsilon is conditional on it.
    """

    key: str
    name: str
    part: str
    trusted: str
    enforced: bool = True

    @property
    def assumption(self) -> str:
        """The same as a sentence."""
        return f"the {self.part} of {self.key}={self.name}, code of your own, {self.trusted}"

    @property
    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def own_parts(config: Config, plan: Plan) -> tuple[OwnPart, ...]:
    """The user's own code in a run, which has a promise to keep; nothing where it has none."""
    if not plan.private:
        return ()
    scaled = "is scaled by constants alone: no record says anything of another"
    dealt = "tells nothing by which device holds which record"
    law = "draws the noise that it counts on, and says no less of a record than is true"
    # What a loss's gradients are like at two models shows on no finite number of them.
    declared = config.privacy.drift == "smooth"
    smooth = f", and its loss is {config.privacy.smoothness}-smooth, as declared" * declared
    of_losses = _PUBLIC + smooth, not declared
    named = (
        OwnPart("privacy.mechanism", config.privacy.mechanism, "mechanism", law, enforced=False),
        OwnPart("model.name", config.model.name, "model", *of_losses),
        OwnPart("model.loss", config.model.loss or "", "loss", *of_losses),
        OwnPart("partition.scheme", config.partition.scheme, "split", dealt),
        OwnPart("dataset.name", config.dataset.name, "data set", scaled, enforced=False),
    )
    return (*_rules(config, plan), *(part for part in named if is_own(part.name)))


def _rules(config: Config, plan: Plan) -> list[OwnPart]:
    """Of an algorithm's plan and rules those that are a user's."""

    def part(what: str, trusted: str, enforced: bool = True) -> OwnPart:
        return OwnPart("algorithm", config.algorithm, what, trusted, enforced)

    rules, parts = plan.rules, []
    if is_own(config.algorithm):
        parts.append(part("plan", "is made of nothing private"))
    if isinstance(rules.local, OwnRule):
        parts.append(part("local rule", *_of_local_rule(config)))
    if not is_ours(rules.server):
        parts.append(part("server rule", _NOTHING_ELSE))
    if rules.clip_factor is not flat_clip:
        parts.append(part("clip factor", _NOTHING_ELSE))
    return parts


def _of_local_rule(config: Config) -> tuple[str, bool]:
    """Whatever a rule makes of a noised step is post-processing. Before noise it is not."""
    if not get_mechanism(config.privacy.mechanism).noises_every_step:
        when = f"under privacy.mechanism: {config.privacy.mechanism} noise comes after it"
        return f"parts two models no further than plain clipped steps do ({when})", False
    if config.training.participation is not None:
        by_chance = "devices that join by chance (training.participation) go unnoticed"
        return f"shows nobody which devices joined a round ({by_chance})", False
    return _NOTHING_ELSE, True
