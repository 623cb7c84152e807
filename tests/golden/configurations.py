"""What a ledger is computed from. They were drawn at random once, and stand in ledger.json and
drawn.json."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Overrides = dict[str, Any]
Edges = list[list[str]]


@dataclass(frozen=True)
class Configuration:
    """What one ledger is computed from.

    Attributes:
        overrides: of the base parameters, block by block; a key's value replaces the base's.
        edges: (parent, child) pairs of the file that `topology.edges` names, if any.
        sizes: D_j of every device.
    """

    name: str
    overrides: Overrides
    edges: Edges | None
    sizes: list[int]

    def parameters(self, base: dict[str, Any], folder: Path) -> dict[str, Any]:
        """The nested parameters; the file of edges is written into the folder."""
        result = dict(base)
        for block, over in self.overrides.items():
            result[block] = base.get(block, {}) | over if isinstance(over, dict) else over
        if self.edges is not None:
            file = folder / f"{self.name}.csv"
            with file.open("w", newline="") as stream:
                csv.writer(stream).writerows([["parent", "child"], *self.edges])
            result["topology"] = result["topology"] | {"edges": str(file)}
        return result
