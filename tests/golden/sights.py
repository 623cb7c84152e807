"""Who reads what: two marks of all that follows from it, for every configuration.

For those of the golden ledger, and for the 200 of drawn.json, drawn at random once, which have what
came since: sums, elected super-nodes, chance, zones' algorithms, bounded models, split models,
collusion. Of each: every line of the ledger with its words and its noise, where every observer
reads what of every device in a round, and the table of zones. One mark is the SHA-256 of all but
the floats, whose last bits are the processor's; the other is a weighted mean of their logarithms.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden.adapter import sights
from tests.golden.configurations import Configuration

from m2fdp.core.errors import InputError

Marks = tuple[str, float]
Frozen = dict[str, Marks]
_DRAWN = json.loads((Path(__file__).parent / "drawn.json").read_text(encoding="utf-8"))


def make(ledger: dict[str, Any]) -> Frozen:
    """The marks of every configuration.

    Args:
        ledger: the golden ledgers.
    """
    with TemporaryDirectory() as folder:
        return {
            name: _marks(configuration, ledger["base"], Path(folder))
            for name, configuration in _configurations(ledger).items()
        }


def differences(frozen: Frozen, ledger: dict[str, Any], every: int) -> Iterator[str]:
    """A line for each of every so many-th configuration of which something has changed."""
    configurations = _configurations(ledger)
    with TemporaryDirectory() as folder:
        for name, was in list(frozen.items())[::every]:
            configuration = configurations[name]
            try:
                found = _marks(configuration, ledger["base"], Path(folder))
            except InputError as error:
                found = f"refused: {error}", 0.0
            # One of ten thousand floats that is off by 1e-6 moves their mean by 1e-10.
            if found[0] != was[0] or not math.isclose(found[1], was[1], rel_tol=0, abs_tol=1e-10):
                text = json.dumps(asdict(configuration))
                yield f"{name}: another sight of {text}: {found}"


def _configurations(ledger: dict[str, Any]) -> dict[str, Configuration]:
    every = [*(each["configuration"] for each in ledger["ledgers"]), *_DRAWN]
    return {each["name"]: Configuration(**each) for each in every}


def _marks(configuration: Configuration, base: dict[str, Any], folder: Path) -> Marks:
    digest, logarithms = sha256(), [0.0]
    for line in sights(configuration.parameters(base, folder), configuration.sizes):
        for value in _flat(line):
            if isinstance(value, float) and 0 < value < math.inf:
                # Weights between 1 and 2 by the golden section: an exchange of two floats shows.
                weight = 1 + len(logarithms) * 0.6180339887498949 % 1
                logarithms.append(weight * math.log(value))
                digest.update(b"float\n")
            else:
                digest.update(f"{value}\n".encode())
    return digest.hexdigest(), math.fsum(logarithms) / len(logarithms)


def _flat(value: object) -> Iterator[object]:
    """What stands in tuples and lists, from left to right; the length of each before it."""
    if isinstance(value, tuple | list):
        yield len(value)
        for part in value:
            yield from _flat(part)
    else:
        yield value
