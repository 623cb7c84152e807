"""Ledgers of the configurations: computed, packed into a small file, and compared."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden.adapter import ledger_lines
from tests.golden.configurations import Configuration

from m2fdp.core.errors import InputError

# Relative, of noises and epsilons: roots, found to some 1e-12, and a processor's last bits decide
# which number there.
TOLERANCE = 1e-9
Row = dict[str, Any]


def make(golden: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """All that is written down, anew: the base parameters, and for the same configurations ledgers
    and the texts of refusals."""
    made: dict[str, Any] = {"base": base, "ledgers": [], "refusals": []}
    with TemporaryDirectory() as folder:
        for kind in ("ledgers", "refusals"):
            for kept in golden[kind]:
                found = _computed(Configuration(**kept["configuration"]), base, Path(folder))
                if isinstance(found, str) != (kind == "refusals"):
                    raise ValueError(f"{kept['configuration']['name']}: {found}")
                results = {"text": found} if isinstance(found, str) else _packed(found)
                made[kind].append({"configuration": kept["configuration"], **results})
    return made


def differences(golden: dict[str, Any], every: int) -> Iterator[str]:
    """A line for each thing that has changed in every so many-th ledger and in all refusals."""
    base = golden["base"]
    with TemporaryDirectory() as folder:
        for ledger in golden["ledgers"][::every]:
            configuration = Configuration(**ledger["configuration"])
            rows = _computed(configuration, base, Path(folder))
            if isinstance(rows, str):
                yield f"{configuration.name}: is refused: {rows}"
            else:
                yield from _between(configuration.name, _unpacked(ledger), rows)
        for refusal in golden["refusals"]:
            configuration = Configuration(**refusal["configuration"])
            text = _computed(configuration, base, Path(folder))
            if text != refusal["text"]:
                found = text if isinstance(text, str) else "is not refused"
                yield f"{configuration.name}: {found}; was: {refusal['text']}"


def write(golden: dict[str, Any], path: Path) -> None:
    """JSON with a line a configuration, so that a change shows in a diff."""
    parts = [f'"base": {json.dumps(golden["base"])}']
    for key in ("ledgers", "refusals"):
        lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in golden[key])
        parts.append(f'"{key}": [\n{lines}\n]')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _computed(configuration: Configuration, base: dict[str, Any], folder: Path) -> list[Row] | str:
    """The ledger's rows, or why the configuration is refused."""
    parameters = configuration.parameters(base, folder)
    try:
        return ledger_lines(parameters, configuration.sizes)
    except InputError as error:
        return str(error).replace(str(folder), "FOLDER")


def _packed(rows: list[Row]) -> dict[str, Any]:
    """By column: one value where all rows have it, else a list; texts by their number."""
    same, columns = {}, {}
    texts: list[str] = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        if all(value == values[0] for value in values):
            same[name] = values[0]
            continue
        if isinstance(values[0], str):
            texts += [text for text in dict.fromkeys(values) if text not in texts]
            columns[name] = [f"#{texts.index(text)}" for text in values]
        else:
            columns[name] = values
    return {"n": len(rows), "same": same, "texts": texts, "columns": columns}


def _unpacked(ledger: dict[str, Any]) -> list[Row]:
    def value(packed: Any) -> Any:
        return ledger["texts"][int(packed[1:])] if isinstance(packed, str) else packed

    return [
        ledger["same"] | {name: value(values[i]) for name, values in ledger["columns"].items()}
        for i in range(ledger["n"])
    ]


def _between(name: str, was: list[Row], found: list[Row]) -> Iterator[str]:
    if len(was) != len(found):
        yield f"{name}: {len(found)} lines; were {len(was)}"
        return
    for number, (before, after) in enumerate(zip(was, found, strict=True)):
        if before.keys() != after.keys():
            yield f"{name}: columns {sorted(before.keys() ^ after.keys())} come or go"
            return
        for key, value in before.items():
            if not _equal(value, after[key]):
                yield (
                    f"{name}, line {number} ({before['kind']}, {before['position']}): "
                    f"{key} = {after[key]!r}; was {value!r}"
                )


def _equal(was: Any, found: Any) -> bool:
    if isinstance(was, float):
        return math.isclose(was, found, rel_tol=TOLERANCE, abs_tol=0.0)
    return was == found
