"""`Request`: a configuration beside its plan, which is what the checks look at."""

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from m2fdp.core.algorithms import Algorithm, Plan, get_algorithm
from m2fdp.core.config import Config, PrivacyConfig, TrainingConfig
from m2fdp.core.engine.rules import KeepingRule, keeping
from m2fdp.core.privacy.mechanisms import Clipping, Mechanism, get_mechanism
from m2fdp.core.topology.network import Network

# Those of a configuration's pipelines that an `Experiment` has methods for and that read keys that
# nothing else does.
OF_EXPERIMENTS = frozenset({"bound"})
# That stands among them where a tree of real processes is planned.
DEPLOYMENT = "deployment"


@dataclass(frozen=True, eq=False)
class Request:
    """A configuration beside its plan.

    Attributes:
        pipelines: names of those beside training that may be run.
    """

    config: Config
    plan: Plan
    pipelines: frozenset[str] = OF_EXPERIMENTS

    def value(self, key: str) -> Any:
        """What the configuration has for a dotted key."""
        return attrgetter(key)(self.config)

    def changed(self, key: str) -> bool:
        """Whether a key, or a block, differs from its default."""
        return bool(self.value(key) != attrgetter(key)(Config()))

    @property
    def training(self) -> TrainingConfig:
        """The configuration's block."""
        return self.config.training

    @property
    def privacy(self) -> PrivacyConfig:
        """The configuration's block."""
        return self.config.privacy

    @property
    def network(self) -> Network:
        """The plan's."""
        return self.plan.network

    @property
    def joining(self) -> object | None:
        """The chance with which devices join a round, and by whose plan, if no key asks for it;
        None where that is not left to chance."""
        participation, asked = self.network.participation, self.training.participation
        if participation is None or (participation.rate == 1.0 and asked is None):
            return None
        return asked or f"{participation.rate:g} {self._planned}"

    @property
    def weighing(self) -> object | None:
        """How updates are weighed that all devices send; None where they are not, or where devices
        join by chance."""
        if self.network.participation is None or self.joining is not None:
            return None
        asked = self.training.estimator
        return asked if asked != "mean" else self._planned

    @property
    def participants(self) -> object | None:
        """How many devices of a lowest server take part, or by whose plan; None where all may."""
        if self.network.participants is None:
            return None
        return self.training.participants or self._planned

    @property
    def _planned(self) -> str:
        return f"(algorithm: {self.config.algorithm})"

    @cached_property
    def algorithm(self) -> Algorithm:
        """The configured one."""
        return get_algorithm(self.config.algorithm)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The configured one."""
        return get_mechanism(self.privacy.mechanism)

    @property
    def clipping(self) -> Clipping:
        """What the mechanism bounds a local step by."""
        return self.mechanism.clipping(self.privacy)

    @property
    def keeping(self) -> KeepingRule | None:
        """The local rule, if it keeps something of devices from round to round."""
        return keeping(self.plan.rules.local)
