"""A part of a study: what `--only` picks from its cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from m2fdp.errors import InputError
from m2fdp.reporting.measures import comparable
from m2fdp.reporting.style import ARM, VERSION
from m2fdp.studies.grid import Point, points, varied_keys
from m2fdp.studies.study import Study

OPTION = "--only"


def part_of(study: Study, only: Sequence[str]) -> tuple[Point, ...]:
    """The points that have, for every key given, one of the values given for it.

    Args:
        only: `KEY=VALUE` each, of `version`, `arm` or a key that the study's grids vary; values
            as YAML has them, so that 1 is the grid's 1.0. All points where it is empty.

    Raises:
        InputError: not of that form, a key or value that the study has not, or no point at all.
    """
    wanted: dict[str, list[str]] = {}
    for text in only:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(
                OPTION, text, f"give KEY=VALUE; keys are {_listed(varied_keys(study))}"
            )
        wanted.setdefault(key, []).append(value)
    every = tuple(points(study))
    kept = every
    for key, values in wanted.items():
        if key not in varied_keys(study):
            raise InputError(OPTION, key, f"does not vary; keys are {_listed(varied_keys(study))}")
        known = [_value(point, key) for point in every if _has(point, key)]
        found = [_matching(value, known, key) for value in values]
        kept = tuple(p for p in kept if _has(p, key) and any(_value(p, key) in f for f in found))
    if not kept:
        raise InputError(OPTION, ", ".join(only), "the study has no cell with all of these")
    return kept


def _has(point: Point, key: str) -> bool:
    """An arm's own grid is no other arm's."""
    return key in (VERSION, ARM) or key in point.values


def _value(point: Point, key: str) -> Any:
    return {VERSION: point.version, ARM: point.arm}.get(key, point.values.get(key))


def _matching(text: str, known: Sequence[Any], key: str) -> list[Any]:
    """Those of the known values that a text stands for; at least one.

    Raises:
        InputError: it stands for none.
    """
    try:
        value = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]
    except (OmegaConfBaseException, YAMLError):
        value = text
    found = [k for k in known if text == str(k) or comparable(value) == comparable(k)]
    if not found:
        apart = _listed(dict.fromkeys(map(str, known)))
        raise InputError(f"{OPTION} {key}", text, f"the study's are {apart}")
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "(none)"
