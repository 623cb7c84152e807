"""`kedro study sweep`: a study without a file, over values that the command line gives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from m2fdp.claims.layout import Layout, Panel
from m2fdp.core.config.assignments import split_outside
from m2fdp.core.errors import InputError
from m2fdp.studies.part import as_yaml
from m2fdp.studies.study import SWEEP, Study

OVER, SEEDS = "--over", "--seeds"
DEFAULT_SEEDS = 3
_FORM = "give KEY=VALUE|VALUE, such as privacy.epsilon=1|2|4"
_LOGARITHMIC = 10  # times the least value is the largest: an axis of factors
_MOST_COLUMNS = 3


def sweep_keys(over: Sequence[str]) -> tuple[str, ...]:
    """The keys of such options, in their order."""
    return tuple(text.partition("=")[0].strip() for text in over)


def sweep(over: Sequence[str], seeds: int | None) -> Study:
    """The study of all combinations of some values.

    Its figure has a key of numbers as x, if there is one, and a line for each value of another key,
    first of the algorithm; else dots. Whatever keys are left have a panel for each combination.

    Args:
        over: `KEY=VALUE|VALUE` each, values as `--params` reads them.
        seeds: how many, from 0; None = `DEFAULT_SEEDS`.

    Raises:
        InputError: none, not of that form, a key that is given twice, or seeds.
    """
    if not over:
        raise InputError(OVER, "(none)", f"what the sweep goes over is missing; {_FORM}")
    grid: dict[str, list[Any]] = {}
    for text, key in zip(over, sweep_keys(over), strict=True):
        values = [each.strip() for each in split_outside(text.partition("=")[2], "|")]
        if not key or not all(values):
            raise InputError(OVER, text, _FORM)
        if key == "seed":
            raise InputError(OVER, text, f"give {SEEDS}=N for the seeds 0 to N - 1")
        if key in grid:
            raise InputError(OVER, text, f"{key} is given twice; give all its values at once")
        grid[key] = [as_yaml(value) for value in values]
    title = f"A sweep over {' and '.join(grid)}"
    all_seeds = list(range(DEFAULT_SEEDS if seeds is None else seeds))
    return Study(title=title, grid={**grid, "seed": all_seeds}, figure=_layout(grid))


def check_not_swept(name: str, over: Sequence[str], seeds: int | None) -> None:
    """Refuse a sweep's options for a study that has a file.

    Raises:
        InputError: naming the option.
    """
    given = {OVER: ", ".join(over) if over else None, SEEDS: seeds}
    for option, value in given.items():
        if value is not None:
            remedy = f"is an option of `kedro study {SWEEP}`; the file of {name} says what varies"
            raise InputError(option, value, remedy)


def _layout(grid: Mapping[str, Sequence[Any]]) -> Layout:
    """A panel for each combination of what neither x nor lines show."""
    numeric = [key for key, values in grid.items() if len(values) > 1 and _numbers(values)]
    x = (*numeric, *grid)[0]
    others = sorted((key for key in grid if key != x), key=lambda key: key != "algorithm")
    lines = (*others, "algorithm" if numeric else x)[0]
    numbers = _numbers(grid[x]) if numeric else []
    left = [key for key in others if key != lines]
    panels = [
        Panel(
            title=", ".join(f"{key} = {value}" for key, value in zip(left, values, strict=True))
            or "accuracy in the end",
            x=x,
            lines=lines,
            where={key: value for key, value in zip(left, values, strict=True)},
            log_x=bool(numbers) and 0 < _LOGARITHMIC * min(numbers) <= max(numbers),
        )
        for values in itertools.product(*(grid[key] for key in left))
    ]
    return Layout(columns=min(len(panels), _MOST_COLUMNS), panels=panels)


def _numbers(values: Sequence[Any]) -> list[float]:
    """Values that are numbers, or lists of one, all of them; else none."""
    plain = [each[0] if isinstance(each, list) and len(each) == 1 else each for each in values]
    numeric = [isinstance(each, int | float) and not isinstance(each, bool) for each in plain]
    return plain if all(numeric) else []
