"""What rooms beside the core bring to it. The core names no room: it asks here.

A room is a folder with a module `room`, which imports `Room` alone. `ROOM` in it lists the parts.
`m2fdp/__init__.py` lists the rooms; one of your own is listed by `list_rooms`. A part is told as
`package.module:NAME` and imported when it is first needed, so a list of names costs no import.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
# The rooms' modules, in the order in which tables list what they bring.
_LISTED: list[str] = []


class Room(NamedTuple):
    """What one room brings; each entry is told as `package.module:NAME`. Above each stands what
    the object of that name is."""

    # {name: an `Algorithm`}, {name: a `Mechanism`}.
    algorithms: Mapping[str, str] = {}
    mechanisms: Mapping[str, str] = {}
    # {block of the configuration: its class}; of a block of the core, keys behind its own.
    blocks: Mapping[str, str] = {}
    # {name: a `Kind` of observers}.
    observers: Mapping[str, str] = {}
    # {name: function (block `model`, shape of inputs, number of classes) -> `Model`}.
    models: Mapping[str, str] = {}
    # {name: function `Model` -> the `Model` with a loss of that name}.
    losses: Mapping[str, str] = {}
    # {name: a `Metric` that needs no code of a user's}.
    metrics: Mapping[str, str] = {}
    # {name: function (block `dataset`, folder to unpack in, seed) -> `Dataset`}.
    datasets: Mapping[str, str] = {}
    # {key that names a user's own code: function that makes of it what the core takes}.
    own: Mapping[str, str] = {}
    # {what a user gives, a data set say: function that checks it, or reads it}.
    given: Mapping[str, str] = {}
    # Tables {dotted key that was removed: its `default`, which every run has, and the key `after`
    # which that is recorded, or None}.
    retired: tuple[str, ...] = ()
    # Functions (`Dataset`, its manifest) -> sentences on what the split suffers from.
    splits: tuple[str, ...] = ()
    # Functions that are told the names of the user's own code that has just been loaded.
    loaded: tuple[str, ...] = ()
    # Functions (`Config`, `Plan`) -> the run's `OwnPart`s.
    own_parts: tuple[str, ...] = ()
    # Tables {who reads keys, in words (`READ_BY`): whether a `Request` has it}.
    readers: tuple[str, ...] = ()
    # Functions of a `Config` to prefixes of keys by which something decides: releases depend on it.
    decides: tuple[str, ...] = ()
    # Functions (`Plan`, `Config`) -> the plan with the room's part in it.
    planned: tuple[str, ...] = ()
    # Tuples of the `Fact`s of a run that the room's keys break, of the `Feature`s that it gives a
    # run, and of the `Feature`s of what it does with one.
    facts: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    verb_features: tuple[str, ...] = ()
    # Functions (`Config`, `Plan`) -> lines on what is seldom meant.
    surprises: tuple[str, ...] = ()
    # Functions (`Network`, M, bits of each layer's messages) -> the bits with the room's.
    sent: tuple[str, ...] = ()
    # Functions of a `Network` -> bits that devices send before a round's steps, (N_L,), or None.
    before_steps: tuple[str, ...] = ()
    # Functions (`Premises`, a network's lines) -> the lines as the room counts them.
    lines: tuple[str, ...] = ()
    # Functions (`Config`, `RunPlan`, `Ledger`) -> the ledger with what the room knows beforehand.
    ledgers: tuple[str, ...] = ()
    # Functions (`Premises`, `LockStep`, `Noise`, units of laws) -> the noise as its nodes draw it.
    noises: tuple[str, ...] = ()
    # Functions of an `Assembly` to a `Promised`, for its privacy summary.
    promised: tuple[str, ...] = ()
    # Tuples of texts, each of outputs of a run that epsilon does not cover.
    outside: tuple[str, ...] = ()
    # Functions of an `Assembly` to lines that a user should know before training.
    warned: tuple[str, ...] = ()
    # Functions (`Simulation`, `ExecutionSettings`) -> the subclass of `Round` for what the room
    # does its own way; None where it does nothing.
    rounds: tuple[str, ...] = ()
    # Functions (`TreeProcess`, who else computes) -> the process as the room runs it.
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
    """Add rooms, by the packages of their modules `room`, before anything is asked of any room."""
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
