"""`Request`: a configuration beside its plan, and which of its keys something in the run reads.

Who reads a key is told beside it (`READ_BY`). What comparisons of algorithms share, such as the
schedule, the trust and the target, has no reader: a baseline may leave some of it aside.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from operator import attrgetter
from typing import Any

from m2fdp.core import own_code
from m2fdp.core.algorithms import Algorithm, Plan, get_algorithm
from m2fdp.core.config import Config, Key, PrivacyConfig, TrainingConfig, keys_of
from m2fdp.core.engine.rules import KeepingRule, keeping
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import in_yaml
from m2fdp.core.privacy.mechanisms import Clipping, Mechanism, get_mechanism
from m2fdp.core.rooms import brought
from m2fdp.core.topology.network import Network

# Those of a configuration's pipelines that an `Experiment` has methods for and that read keys that
# nothing else does.
OF_EXPERIMENTS = frozenset({"bound"})
_EITHER, _PIPELINE = " | ", "the pipeline "


@dataclass(frozen=True, eq=False)
class Request:
    """A configuration beside its plan, and the pipelines beside training that may be run."""

    config: Config
    plan: Plan
    pipelines: frozenset[str] = OF_EXPERIMENTS

    def value(self, key: str) -> Any:
        """What the configuration has for a dotted key."""
        return attrgetter(key)(self.config)

    @property
    def training(self) -> TrainingConfig:
        return self.config.training

    @property
    def privacy(self) -> PrivacyConfig:
        return self.config.privacy

    @property
    def network(self) -> Network:
        return self.plan.network

    @property
    def participants(self) -> object | None:
        """How many devices of a lowest server take part, or by whose plan; None where all may."""
        if self.network.participants is None:
            return None
        return self.training.participants or self.planned

    @property
    def planned(self) -> str:
        """Whose plan something is that no key asks for."""
        return f"(algorithm: {self.config.algorithm})"

    @cached_property
    def algorithm(self) -> Algorithm:
        return get_algorithm(self.config.algorithm)

    @cached_property
    def mechanism(self) -> Mechanism:
        return get_mechanism(self.privacy.mechanism)

    @property
    def clipping(self) -> Clipping:
        """What the mechanism bounds a local step by."""
        return self.mechanism.clipping(self.privacy)

    @property
    def keeping(self) -> KeepingRule | None:
        """The local rule, if it keeps something of devices from round to round."""
        return keeping(self.plan.rules.local)


def in_words(reader: str) -> str:
    """The text of a reader as users see it."""
    return reader.replace(_EITHER, " or ")


def refuse_idle(request: Request) -> None:
    """Refuse the first key that differs from its default and that nothing reads.

    Raises:
        InputError: naming it, its value, who reads it, and its default.
    """
    for key, reader in idle_keys(request):
        problem = f"belongs to {in_words(reader)}, which this run is without"
        raise InputError(key.name, key.value, f"{problem}; leave it at {in_yaml(key.default)}")


def idle_keys(request: Request) -> Iterator[tuple[Key, str]]:
    """The keys that differ from their defaults and are read by nobody, with the reader that they
    lack."""
    for key in keys_of(request.config, Config()):
        if key.value != key.default:
            lacking = (reader for reader in key.readers if not _reads(reader, request))
            if reader := next(lacking, None):
                yield key, reader


def read_keys(request: Request) -> frozenset[str]:
    """The keys that something in the run reads; all others have their defaults."""
    keys = keys_of(request.config, Config())
    return frozenset(key.name for key in keys if all(_reads(each, request) for each in key.readers))


def _reads(reader: str, request: Request) -> bool:
    """Whether a run has a reader, as `READ_BY` says."""
    if _EITHER in reader:
        return any(_reads(each, request) for each in reader.split(_EITHER))
    if has := named_readers().get(reader):
        return has(request)
    if reader.startswith(_PIPELINE):
        return reader.removeprefix(_PIPELINE) in request.pipelines
    key, _, values = reader.partition(": ")
    value = request.value(key)
    if not values:
        return bool(value != attrgetter(key)(Config()))
    return value in values.split(" or ") or (own_code.is_own(str(value)) and _is_handed(key, value))


@cache
def named_readers() -> Mapping[str, Callable[[Request], bool]]:
    """Readers that rooms name, and whether a run has them."""
    return {name: has for of_room in brought("readers") for name, has in of_room.items()}


def _is_handed(key: str, name: str) -> bool:
    """Whether code of the user's own, which a key names, takes the whole block."""
    if key not in ("dataset.name", "partition.scheme"):
        return key == "privacy.mechanism"
    return bool(own_code.GIVEN["block"](key, own_code.load(key, name)))
