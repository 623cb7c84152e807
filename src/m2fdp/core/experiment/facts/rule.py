"""Facts of a run, features that need them, and the one rule that refuses."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from m2fdp.core.blocks import Block
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.experiment.request import Request
from m2fdp.core.rooms import brought


def always(run: Request) -> bool:
    """What holds of every run."""
    return True


def _none_wrong(run: Request) -> Iterator[InputError]:
    yield from ()


@dataclass(frozen=True)
class Fact:
    """What a run is, unless one key breaks it.

    Attributes:
        text: the fact as a noun: what a feature "needs". A fact of a room has the core's text.
        key: dotted key of the value, or of the block, that breaks it; "" where no key of the core
            does.
        remedy: the value that gives it.
        holds: whether a run is so.
        shown: what breaks it, where that is not the key's value.
    """

    text: str
    key: str = ""
    remedy: str = ""
    holds: Callable[[Request], bool] = always
    shown: Callable[[Request], object] | None = None


@dataclass(frozen=True)
class Feature:
    """What a run can have, or what can be asked of it, and the facts that it needs.

    Attributes:
        name: the feature as a noun, which "needs"; {algorithm} stands for the algorithm's name.
        there: whether a run has it.
        needs: the facts, in the order in which they are asked for.
        otherwise: what does without the feature.
        key: the key that asks for it, where that is refused and not the fact's.
        shown: what the key asks for, where that is not its value.
        values: the lines on its own values, which are asked for after the facts.
    """

    name: str
    there: Callable[[Request], bool]
    needs: tuple[Fact, ...] = ()
    otherwise: str = ""
    key: str = ""
    shown: Callable[[Request], object] | None = None
    values: Callable[[Request], Iterator[InputError]] = _none_wrong


def refuse(features: Iterable[Feature], run: Request) -> None:
    """Refuse a run of which a feature needs a fact that does not hold.

    Raises:
        InputError: the first such fact, or a feature's first wrong value.
    """
    for line in refusals(features, run):
        raise line


def refusals(features: Iterable[Feature], run: Request) -> Iterator[InputError]:
    """All lines that refuse a run, in the order of features."""
    for feature in features:
        if feature.there(run):
            for fact in map(told, feature.needs):
                if not fact.holds(run):
                    yield _missing(feature, fact, run)
            yield from feature.values(run)


def told(fact: Fact) -> Fact:
    """The fact as told by the room whose keys break it, or as it is."""
    of_rooms = (each for facts in brought("facts") for each in facts)
    return next((each for each in of_rooms if each.text == fact.text), fact)


def _missing(feature: Feature, fact: Fact, run: Request) -> InputError:
    if feature.key:
        key, shown = feature.key, feature.shown
        text, ways = f"needs {fact.text}", (feature.otherwise, f"{fact.key}: {fact.remedy}")
    else:
        key, shown = fact.key, fact.shown
        text, ways = f"{feature.name} needs {fact.text}", (fact.remedy, feature.otherwise)
    value = shown(run) if shown is not None else run.value(key)
    text = f"{text}; use {', or '.join(filter(None, ways))}"
    text = text.replace("{algorithm}", run.config.algorithm)
    return InputError(key, BLOCK if isinstance(value, Block) else value, text)
