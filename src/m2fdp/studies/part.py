"""A part of a study: what `--only` picks from its cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yaml import YAMLError

from m2fdp.claims.frames import ARM, VERSION, selecting
from m2fdp.core.errors import InputError, among
from m2fdp.core.yaml_files import read_value
from m2fdp.studies.grid import Point, points, varied_keys
from m2fdp.studies.study import Study

OPTION = "--only"


def part_of(study: Study, options: Sequence[str]) -> tuple[Point, ...]:
    """The points that have, for every key given, one of the values given for it.

    Args:
        options: `KEY=VALUE` each, of `version`, `arm` or a key that the study's grids vary; values
            select as in a figure's `where`. All points where it is empty.

    Raises:
        InputError: not of that form, a key or value that the study has not, or no point at all.
    """
    keys, every = varied_keys(study), tuple(points(study))
    rows = [{VERSION: point.version, ARM: point.arm, **point.values} for point in every]
    picked: dict[str, set[int]] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(OPTION, text, f"give KEY=VALUE; keys are {among(key, keys)}")
        if key not in keys:
            raise InputError(OPTION, key, f"does not vary; keys are {among(key, keys)}")
        selected, of_key = selecting(key, as_yaml(value)), [row.get(key) for row in rows]
        rows_with = [number for number, value in enumerate(of_key) if selected(value)]
        if not rows_with:
            values = dict.fromkeys(str(value) for value in of_key if value is not None)
            raise InputError(f"{OPTION} {key}", value, f"the study's are {among(value, values)}")
        picked.setdefault(key, set()).update(rows_with)
    chosen = set(range(len(rows))).intersection(*picked.values())
    if not chosen:
        raise InputError(OPTION, ", ".join(options), "the study has no cell with all of these")
    return tuple(every[row] for row in sorted(chosen))


def as_yaml(text: str) -> Any:
    """The value, as `--params` reads one; what is no YAML stays text, which selects nothing."""
    try:
        return read_value(text)
    except YAMLError:
        return text
