"""Who reads what: a SHA-256 of all that follows from it, for every configuration.

For those of the golden ledger, and for the 200 of drawn.json, drawn at random once, which have what
came since: sums, elected super-nodes, chance, zones' algorithms, bounded models, split models,
collusion. Of each: every line of the ledger with its words and its noise to the last bit, where
every observer reads what of every device in a round, and the table of zones.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden.adapter import sights
from tests.golden.configurations import Configuration

from m2fdp.core.errors import InputError

Frozen = dict[str, str]
_DRAWN = json.loads((Path(__file__).parent / "drawn.json").read_text(encoding="utf-8"))


def make(ledger: dict[str, Any]) -> Frozen:
    """A digest a configuration.

    Args:
        ledger: the golden ledgers.
    """
    with TemporaryDirectory() as folder:
        return {
            name: _digest(configuration, ledger["base"], Path(folder))
            for name, configuration in _configurations(ledger).items()
        }


def differences(frozen: Frozen, ledger: dict[str, Any], every: int) -> Iterator[str]:
    """A line for each of every so many-th configuration of which something has changed."""
    configurations = _configurations(ledger)
    with TemporaryDirectory() as folder:
        for name, was in list(frozen.items())[::every]:
            configuration = configurations[name]
            try:
                found = _digest(configuration, ledger["base"], Path(folder))
            except InputError as error:
                found = f"refused: {error}"
            if found != was.split()[-1]:  # once after the number of the draw
                text = json.dumps(asdict(configuration))
                yield f"{name}: another sight of {text}: {found}"


def _configurations(ledger: dict[str, Any]) -> dict[str, Configuration]:
    every = [*(each["configuration"] for each in ledger["ledgers"]), *_DRAWN]
    return {each["name"]: Configuration(**each) for each in every}


def _digest(configuration: Configuration, base: dict[str, Any], folder: Path) -> str:
    digest = sha256()
    for line in sights(configuration.parameters(base, folder), configuration.sizes):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()
