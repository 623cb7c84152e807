"""What each panel of a figure shows of the runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pandas as pd

from m2fdp.claims.declared import DELAY, OVER_A_RUN, ROUND, Layout, Panel, curves
from m2fdp.claims.frames import ARM, TAGS, comparable, select_runs, swept_columns
from m2fdp.claims.measures import MEASURES, SIZES, check_measure
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import parameter
from m2fdp.reporting import style

# Columns that every frame of runs has and that tell runs apart.
_ALWAYS = ("algorithm", "seed")
NAMES = ("algorithm", *TAGS)  # never numbers
_X, _LINE = "_x", "_line"  # columns of a panel's runs


@dataclass(frozen=True)
class Curve:
    """The runs of one line in one panel."""

    label: str
    order: tuple  # of lines in a legend
    algorithms: frozenset[str]
    run_ids: pd.Index
    # By x: mean and std of the measure, the seeds that have run, and those that have the measure.
    points: pd.DataFrame

    @property
    def seeds(self) -> set[int]:
        return set(self.points["seeds"])


@dataclass(frozen=True)
class Content:
    """What a panel shows."""

    panel: Panel
    x_label: str  # empty where the values of x say enough
    lines: tuple[Curve, ...]  # in order
    categories: tuple[str, ...]  # texts of x, in order; none where x has numbers

    @property
    def lack(self) -> str | None:
        """Why there is nothing to draw; None if there is something."""
        if not self.lines:
            return "no finished runs"
        if self.panel.x in OVER_A_RUN or any(line.points["measured"].any() for line in self.lines):
            return None
        if self.panel.y.endswith("to_target"):
            return "no finished run reached the target"
        return f"no finished run has {self.panel.y}"

    @property
    def names_itself(self) -> bool:
        """Dots that are lines themselves have their names beside them."""
        return bool(self.categories) and self.panel.lines == self.panel.x


def check_layout(
    layout: Layout, columns: Collection[str], target_accuracy: float | None = None
) -> None:
    """Refuse a layout that a study's runs can't fill, whatever their results.

    Args:
        columns: what the runs differ in: arm, version, dotted keys of parameters.
        target_accuracy: the study's target; None = none.
    """
    fixed = [*dict.fromkeys((*_ALWAYS, *columns))]
    drawable = [*OVER_A_RUN, *fixed, *SIZES]
    for column in layout.names:
        _check_one_of("figure.names", column, drawable)
    for number, panel in enumerate(layout.panels):
        key = f"figure.panels.{number}"
        _check_one_of(f"{key}.x", panel.x, drawable)
        _check_one_of(f"{key}.lines", panel.lines, fixed)
        for column in panel.where:
            _check_one_of(f"{key}.where.{column}", column, fixed)
        measures = {"y": panel.y} | ({"x": panel.x} if panel.x in SIZES else {})
        for name, measure in measures.items():
            try:
                check_measure(measure, columns, target_accuracy)
            except InputError as error:
                raise InputError(f"{key}.{name}", measure, error.remedy) from None
        if panel.x in OVER_A_RUN and panel.y not in curves():
            axis, drawn = "rounds" if panel.x == ROUND else "seconds", " and ".join(curves())
            raise InputError(f"{key}.y", panel.y, f"over {axis} only {drawn} are drawn")


def _check_one_of(key: str, name: str, valid: Collection[str]) -> None:
    if name not in valid:
        raise InputError(key, name, f"is none of {among(name, valid)}")


def panel_contents(
    layout: Layout, measured: pd.DataFrame, labels: Mapping[str, str]
) -> list[Content]:
    """What each panel of a layout shows, whatever the order of the rows.

    Args:
        layout: checked by `check_layout`.
        measured: one row a run, of `m2fdp.claims.measuring.measure_runs`.
        labels: the arms' texts, in the order in which lines are listed; arms without one are
            listed after them, by their names.
    """
    runs = measured.sort_values("seed", kind="stable")
    return [_content(layout, number, runs, labels) for number in range(len(layout.panels))]


def _content(layout: Layout, number: int, runs: pd.DataFrame, labels: Mapping[str, str]) -> Content:
    """A panel's runs by line and x."""
    panel, names, key = layout.panels[number], layout.names, f"figure.panels.{number}"
    _check_one_of(f"{key}.x", panel.x, [*OVER_A_RUN, *runs.columns])
    _check_one_of(f"{key}.y", panel.y, [measure for measure in MEASURES if measure in runs])
    _check_one_of(f"{key}.lines", panel.lines, runs.columns)
    try:
        selected = select_runs(runs, panel.where)
    except InputError as error:
        raise InputError(f"{key}.where", error.value, error.remedy) from None
    usual = "simulated seconds" if panel.x == DELAY else panel.x
    x_label = "" if panel.x in NAMES else names.get(panel.x, usual)
    if selected.empty:
        return Content(panel, x_label, (), ())
    # Over a run a line has but one number of seeds.
    one_point = panel.x in OVER_A_RUN
    x = pd.Series(0.0, index=selected.index) if one_point else _numbers(selected[panel.x])
    categories: tuple[str, ...] = ()
    if x is None:
        if panel.log_x:
            raise InputError(f"{key}.log_x", True, f"{panel.x} has no numbers")
        x = selected[panel.x].map(lambda value: _text(panel.x, value, labels))
        places = [_order(run, panel.x, labels) for _, run in selected.iterrows()]
        categories = tuple(dict.fromkeys(x.iloc[sorted(range(len(x)), key=places.__getitem__)]))
    elif panel.log_x and (x <= 0).any():
        raise InputError(f"{key}.log_x", True, f"{panel.x} = {x.min():g} has no logarithm")
    lines = selected[panel.lines].map(lambda value: _text(panel.lines, value, labels))
    if panel.lines not in NAMES:
        lines = f"{names.get(panel.lines, panel.lines)} = " + lines
    drawn = selected.assign(**{_X: x, _LINE: lines}).dropna(subset=_X)
    _check_unmixed(drawn, key)
    shown = [_line(str(label), rows, panel, labels) for label, rows in drawn.groupby(_LINE)]
    shown.sort(key=lambda line: (line.order, line.label))
    return Content(panel, x_label, tuple(shown), categories)


def _line(label: str, runs: pd.DataFrame, panel: Panel, labels: Mapping[str, str]) -> Curve:
    points = runs.groupby(_X)[panel.y].agg(["mean", "std", "size", "count"])
    points.columns = ["mean", "std", "seeds", "measured"]
    order = min(_order(run, panel.lines, labels) for _, run in runs.iterrows())
    return Curve(label, order, frozenset(runs["algorithm"]), runs.index, points)


def _check_unmixed(runs: pd.DataFrame, key: str) -> None:
    """One run a seed at each point, or their mean would mean nothing."""
    point = [_LINE, _X, "seed"]
    twice = runs[runs.duplicated(point, keep=False)]
    if twice.empty:
        return
    _, mixed = next(iter(twice.groupby(point)))
    swept = swept_columns(runs.columns, (_X, _LINE))
    names = ("algorithm", *swept)
    differing = [name for name in names if mixed[name].map(comparable).nunique(dropna=False) > 1]
    problem = f"has {len(mixed)} runs at one point, which differ in "
    problem += f"{', '.join(differing) or 'nothing'}; select one of them"
    if differing:
        lines = " or ".join(f"`lines: {name}`" for name in differing)
        problem += f", or give each a line by {lines}"
    run = f"{mixed[_LINE].iloc[0]}, seed {mixed['seed'].iloc[0]}"
    raise InputError(f"{key}.where", run, problem)


def _numbers(values: pd.Series) -> pd.Series | None:
    """A column as numbers, a list of one element as that; None if it has something else."""
    if values.name in NAMES:
        return None
    plain = [comparable(value) for value in values]
    plain = [value[0] if isinstance(value, tuple) and len(value) == 1 else value for value in plain]
    if not all(isinstance(value, float | None) for value in plain):
        return None
    return pd.Series(plain, index=values.index, dtype=float)


def _text(column: str, value: object, labels: Mapping[str, str]) -> str:
    """A value's text beside an axis that names its column."""
    if column == ARM:
        return labels.get(str(value), str(value))
    if column == "algorithm":
        return get_algorithm(str(value)).title
    return parameter(value)


def _order(run: pd.Series, column: str, labels: Mapping[str, str]) -> tuple:
    """Sorts a column's values: as labelled, baselines first, numbers before texts."""
    value = comparable(run[column])
    numbers = value if isinstance(value, tuple) else (value,)
    numeric = all(isinstance(number, float) for number in numbers)
    labelled = column == ARM and run[column] in labels
    place = list(labels).index(run[column]) if labelled else len(labels)
    algorithm = style.position(run["algorithm"]) if column in (ARM, "algorithm") else 0
    return place, algorithm, not numeric, numbers if numeric else (), str(run[column])
