"""What rooms beside the core bring to it. The core names no room: it asks here.

A room is a folder with a module `room`. `ROOM` in it lists the room's parts, and
`m2fdp/__init__.py` lists the rooms. A part is told as `package.module:NAME` and imported when it is
first needed, so a list of names costs no import.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")
# The rooms' modules, in the order in which tables list what they bring.
_LISTED: list[str] = []


@dataclass(frozen=True)
class Room:
    """What one room brings; each entry is told as `package.module:NAME`.

    Attributes:
        algorithms: {name: an `Algorithm`}.
        mechanisms: {name: a `Mechanism`}.
        blocks: {block of the configuration: its class, a `Block`}; of a block of the core, the keys
            that are put behind its own.
        readers: tables {who reads keys, in words (`READ_BY`): whether a `Request` has it}.
        observers: {name: a `Kind` of observers}.
        decides: functions from a `Config` to the prefixes of keys that a release depends on because
            something decides by them.
        sent: functions (`Network`, M, bits of each layer's messages) -> the bits with the room's.
        before_steps: functions from a `Network` to the bits that each device sends before a round's
            first step, float64 (N_L,), or None where it sends nothing then.
        models: {name: a function (block `model`, shape of inputs, number of classes) -> `Model`}.
        datasets: {name: a function (block `dataset`, folder to unpack in) -> `Dataset`}.
        loaded: functions that are told the names of the user's own code that has just been loaded.
        own: {key that names a user's own code: the function that makes of it what the core takes}.
        own_parts: functions from a `Config` and a `Plan` to the `OwnPart`s of the run.
        planned: functions from a `Plan` and a `Config` to the plan with the room's part in it.
        facts: tuples of the `Fact`s of a run that the room's keys break.
        features: tuples of the `Feature`s that the room gives a run.
        verb_features: tuples of the `Feature`s of what the room does with a run.
        surprises: functions from a `Config` and a `Plan` to lines on what is seldom meant.
        lines: functions from `Premises` and a network's lines to the lines as the room counts them.
        ledgers: functions from a `Config`, a `RunPlan` and a `Ledger` to the ledger with what the
            room knows of the run before training.
        noises: functions from `Premises`, a `LockStep`, a `Noise` and the units of the devices'
            laws to the noise as the room's nodes draw it.
        promised: functions from an `Assembly` to a `Promised`, for its privacy summary.
        outside: tuples of texts, each of outputs of a run that epsilon does not cover.
        warned: functions from an `Assembly` to lines that a user should know before training.
        rounds: functions from a `Simulation` and `ExecutionSettings` to what the room does its own
            way in a round, a subclass of `Round`; None where it does nothing.
        executed: functions (`TreeProcess`, who else computes) -> the process as the room runs it.
    """

    algorithms: Mapping[str, str] = field(default_factory=dict)
    mechanisms: Mapping[str, str] = field(default_factory=dict)
    blocks: Mapping[str, str] = field(default_factory=dict)
    readers: tuple[str, ...] = ()
    observers: Mapping[str, str] = field(default_factory=dict)
    decides: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    before_steps: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    loaded: tuple[str, ...] = ()
    own: Mapping[str, str] = field(default_factory=dict)
    own_parts: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    verb_features: tuple[str, ...] = ()
    surprises: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    ledgers: tuple[str, ...] = ()
    noises: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ()
    executed: tuple[str, ...] = ()


class Catalogue(MutableMapping[str, T], Generic[T]):
    """Objects by name: the core's, the rooms', those put in; a path is imported when asked for.

    Args:
        attribute: the attribute of `Room` that has the rooms'.
        own: {name: the object, or its `package.module:NAME`}, the core's.
    """

    def __init__(self, attribute: str, own: Mapping[str, str | T]) -> None:
        self._attribute, self._own = attribute, own
        self._put_in: dict[str, T] = {}

    def _where(self) -> dict[str, str | T]:
        where: dict[str, str | T] = dict(self._own)
        for room in rooms():
            where |= getattr(room, self._attribute)
        return where | self._put_in

    def __getitem__(self, name: str) -> T:
        found = self._where()[name]
        return load(found) if isinstance(found, str) else found

    def __setitem__(self, name: str, value: T) -> None:
        self._put_in[name] = value

    def __delitem__(self, name: str) -> None:
        del self._put_in[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._where())

    def __len__(self) -> int:
        return len(self._where())


def list_rooms(*packages: str) -> None:
    """Say which rooms there are, by the packages of their modules `room`."""
    _LISTED.extend(package for package in packages if package not in _LISTED)
    rooms.cache_clear()


@cache
def rooms() -> tuple[Room, ...]:
    """What all rooms bring, in their order."""
    return tuple(load(f"{package}.room:ROOM") for package in _LISTED)


def brought(attribute: str) -> tuple[Any, ...]:
    """The objects that rooms bring under an attribute of `Room` that is a tuple, in their order."""
    return tuple(load(path) for room in rooms() for path in getattr(room, attribute))


def load(path: str) -> Any:
    """The object of a path `package.module:NAME`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
