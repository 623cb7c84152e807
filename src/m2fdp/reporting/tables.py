"""Tables of runs and of privacy ledgers: numbers first, text only where it is shown."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from m2fdp.claims.frames import ARM, VERSION, in_order, swept_columns
from m2fdp.claims.measures import MEASURES
from m2fdp.core import metrics
from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import (
    counted,
    nominal,
    parameter,
    promised_epsilon,
    quantity,
    upper_bound,
    verified,
)
from m2fdp.core.metrics import ACCURACY, LOSS, OWN, Metric, names_of, told
from m2fdp.reporting.style import position


def new_table(
    title: str,
    texts: Sequence[str] = (),
    numbers: Sequence[str] = (),
    caption: str | None = None,
    digits: int = 0,
) -> Table:
    """A table without rows."""
    note = None if caption is None else Text(caption)
    table = Table(title=Text(title), title_justify="left", caption=note, caption_justify="left")
    for name in texts:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, min_width=max(len(name), digits))
    return table


def show(what: RenderableType, console: Console | None = None) -> None:
    """Print it whole, however narrow the terminal; None = on standard output."""
    (console or Console(highlight=False)).print(what, crop=False)


_MEAN, _STD = "_mean", "_std"  # end the names of columns
_NOMINAL, _VERIFIED = metrics.EPSILON_NOMINAL, metrics.EPSILON_VERIFIED
_BOUNDS = names_of((_NOMINAL, _VERIFIED))
_IN_WORDS = {"parent": "server", "q = 1$": "all records in every step"}  # of positions
_COSTS = (metrics.ENERGY, metrics.DELAY)
# The columns that say something of the runs, beside those by which they are told apart.
TABLE_COLUMNS = (
    *("algorithm", "privacy", "seeds"),
    *(f"{ACCURACY.name}{_MEAN}", f"{ACCURACY.name}{_STD}", f"{LOSS.name}{_MEAN}"),
    *(*_BOUNDS, *names_of(_COSTS)),
)
QUALITY = f"{ACCURACY.name} ± std"  # the header
PRINTED_POSITIONS = 4


def comparison_table(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per algorithm, guarantee, arm and swept parameters, in the algorithms' order.

    Args:
        runs: one row a run with `RUN_COLUMNS`; every other column is a study's arm or a swept
            parameter.

    Returns:
        The swept columns, and numbers: how many seeds, mean and sample standard deviation (NaN for
        one seed) of the accuracy and of the users' own metrics, the largest epsilons over the
        seeds as they are upper bounds (a missing one is infinite), and mean loss, energy and
        delay.

    Raises:
        InputError: no runs, a seed twice in a row's runs, or an unknown algorithm.
    """
    if runs.empty:
        raise InputError("runs", "(none)", "there is nothing to compare yet")
    swept, own = swept_columns(runs.columns), [name for name in OWN if name in runs]
    keys = ["algorithm", *swept, "privacy"]
    refuse_twice("runs", runs, [*keys, "seed"], "{algorithm}, seed {seed}")
    bounds = {name: runs[name].astype(float).fillna(math.inf) for name in _BOUNDS}
    of_seeds = {
        **{f"{name}{end}": (name, end[1:]) for name in (ACCURACY.name,) for end in (_MEAN, _STD)},
        f"{LOSS.name}{_MEAN}": (LOSS.name, "mean"),
        **{name: (name, "max") for name in _BOUNDS},
        **{name: (name, "mean") for name in names_of(_COSTS)},
        **{f"{name}{end}": (name, end[1:]) for name in own for end in (_MEAN, _STD)},
    }
    return _over_seeds(runs.assign(**bounds), keys, of_seeds)


def measure_table(measured: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """One row per algorithm, arm and swept parameters, in the algorithms' order.

    Args:
        measured: one row a run, of `m2fdp.claims.measuring.measure_runs`.

    Returns:
        algorithm, the swept columns, seeds, and each measure: its mean over the seeds that have
        it, or of an upper bound the largest.
    """
    how = {name: (name, "max" if MEASURES[name].bound else "mean") for name in measures}
    return _over_seeds(measured, ["algorithm", *swept_columns(measured.columns)], how)


def measures_to_markdown(table: pd.DataFrame, measures: Sequence[str]) -> str:
    """Such a table in Markdown, upper bounds rounded up; a dash where no run has the measure."""
    names = [name for name in table.columns if name not in ("algorithm", "seeds", *measures)]
    rows = [
        {"algorithm": get_algorithm(row["algorithm"]).title}
        | {name: parameter(row[name]) for name in names}
        | {MEASURES[name].label: written(name, row[name]) for name in measures}
        for row in table.to_dict("records")
    ]
    return markdown(pd.DataFrame(rows), ["algorithm", *names])


def written(measure: str, value: float) -> str:
    """A measure's value, an upper bound rounded up; a dash where there is none."""
    bound = MEASURES[measure].bound and not math.isnan(value)
    return upper_bound(value) if bound else MEASURES[measure].text(value)


def _over_seeds(
    runs: pd.DataFrame, keys: list[str], columns: Mapping[str, tuple[str, str]]
) -> pd.DataFrame:
    """Runs that are equal in some columns as one row, with `seeds` and what each column is of."""
    rows = (
        runs.sort_values("seed")  # so that sums do not depend on the order of the runs
        .assign(place=runs["algorithm"].map(position))
        .groupby(["place", *keys], dropna=False, sort=False)
        .agg(**{"seeds": ("seed", "size"), **columns})
    )
    return in_order(rows.reset_index(), ["place", *keys]).drop(columns="place")


def displayed(table: pd.DataFrame) -> pd.DataFrame:
    """A comparison table as people read it: all text, titles for names."""
    own = [metric for name, metric in OWN.items() if f"{name}{_MEAN}" in table]
    of_own = [f"{metric.name}{end}" for metric in own for end in (_MEAN, _STD)]
    swept = [name for name in table.columns if name not in (*TABLE_COLUMNS, *of_own)]
    rows = []
    for row in table.to_dict("records"):
        rows.append(
            {"algorithm": get_algorithm(row["algorithm"]).title}
            | {name: parameter(row[name]) for name in swept}
            | {
                QUALITY: _mean_and_std(row, ACCURACY),
                **{f"{metric.label} ± std": _mean_and_std(row, metric) for metric in own},
                "seeds": str(row["seeds"]),
                _NOMINAL.label: nominal(row[_NOMINAL.name]),
                _VERIFIED.label: verified(row["privacy"], row[_VERIFIED.name]),
                **{cost.label: quantity(row[cost.name]) for cost in _COSTS},
            }
        )
    return pd.DataFrame(rows)


def to_markdown(table: pd.DataFrame) -> str:
    """A comparison table in Markdown; numbers are aligned to the right."""
    frame = displayed(table)
    return markdown(frame, _text_columns(frame))


def markdown(frame: pd.DataFrame, texts: Collection[str]) -> str:
    """A frame of texts in Markdown; columns that are not among `texts` are aligned to the right."""
    rules = ["---" if name in texts else "---:" for name in frame.columns]
    lines = [list(frame.columns), rules, *frame.to_numpy().tolist()]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def print_table(table: pd.DataFrame, console: Console, title: str) -> None:
    """A comparison table in the terminal."""
    frame = displayed(table)
    texts = _text_columns(frame)
    result = new_table(title)
    whole = ("algorithm", VERSION, ARM, QUALITY)  # in a narrow terminal the others may wrap
    for name in frame.columns:
        result.add_column(
            name,
            justify="left" if name in texts else "right",
            no_wrap=name in whole,
            min_width=max(map(len, [*name.split(), *(frame[name] if name in whole else ())])),
        )
    for row in frame.to_numpy().tolist():
        result.add_row(*map(Text, row))
    show(result, console)


def worst_positions(ledger: pd.DataFrame, count: int) -> pd.DataFrame:
    """A ledger's lines with one a position and observer, of the positions that lose most.

    Positions of one name differ in what only accountants care about; the largest epsilon of
    them stands for all.

    Args:
        ledger: rows of `m2fdp.core.privacy.ledger.ledger_table`.
        count: how many positions stay: the worst for each kind of observer, distrusted
            ones first, then those with the largest epsilons. They stay in the ledger's order.

    Returns:
        The same columns; `devices` counts those of all positions of the name.
    """
    keys = ["position", "observer"]
    groups = ledger.groupby(keys, sort=False)
    lines = ledger.loc[groups["epsilon"].idxmax()]
    lines["devices"] = groups["devices"].sum().to_numpy()
    lines["position"] = lines["position"].replace(_IN_WORDS, regex=True)
    ranked = lines.sort_values(["distrusted", "epsilon"], ascending=False, kind="stable")
    # Of every kind of observer the worst first, so that no kind is missing.
    ranked = pd.concat([ranked.drop_duplicates("kind"), ranked])
    chosen = ranked["position"].drop_duplicates()[:count]
    return lines[lines["position"].isin(chosen)].reset_index(drop=True)


def shown_of(ledger: pd.DataFrame, lines: pd.DataFrame, mark: str) -> str:
    """The end of a title, behind a mark: how many positions are shown, if not all."""
    n_shown, n_all = lines["position"].nunique(), ledger["position"].nunique()
    return f"{mark} the {n_shown} of {n_all} positions that lose most" if n_shown < n_all else ""


def refuse_twice(key: str, table: pd.DataFrame, columns: Sequence[str], row: str) -> None:
    """Refuse a table with two rows that are equal in some columns.

    Args:
        row: how a row is called, a format of its columns.
    """
    twice = table[table.duplicated(list(columns))]
    if len(twice):
        remedy = "is there more than once; keep one run, or compare by the parameter that differs"
        raise InputError(key, row.format(**twice.iloc[0]), remedy)


def print_ledger(ledger: pd.DataFrame, console: Console | None = None) -> None:
    """A privacy ledger in the terminal: under each position, who learns how much about it."""
    worst = worst_positions(ledger, PRINTED_POSITIONS)
    title = f"Privacy ledger at δ = {ledger['delta'].iloc[0]:g} ({ledger['adjacency'].iloc[0]})"
    numbers = ("promise", "messages", "noise", "ε")
    result = new_table(title + shown_of(ledger, worst, ","), ["who could read"], numbers, digits=7)
    for place, lines in worst.groupby("position", sort=False):
        result.add_row(Text(f"{counted(int(lines['devices'].max()), 'device')} {place}", "bold"))
        for line in lines.to_dict("records"):
            result.add_row(
                Text(f"  {line['observer']}"),
                "yes" if line["distrusted"] else "",
                f"{line['releases']:,}",
                f"{line['noise']:.3g}" if line["noise"] else "none",
                upper_bound(line["epsilon"]),
            )
        result.add_section()
    show(result, console)


def print_result(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """What a run has reached, in the terminal."""
    title = get_algorithm(summary["algorithm"]).title
    result = Table.grid(padding=(0, 2))
    result.title = Text(
        f"{title}, seed {summary['seed']}, after {counted(summary['rounds'], 'round')}"
    )
    result.title_justify = "left"
    rows = told(summary)
    if "answers" in summary:
        rows.insert(1, ("answers", summary["answers"]))
    more = [("ε", promise_line(summary["privacy"], summary))]
    if (score := metrics.SCORE).name in summary:
        more.insert(0, (score.words, f"{score.of_run(summary[score.name])}, noised"))
    for name, value in [*rows[: -len(_COSTS)], *more, *rows[-len(_COSTS) :]]:
        result.add_row(Text(name), Text(value))
    show(result, console)


def promise_line(guarantee: str, promise: Mapping[str, Any]) -> str:
    """Epsilon as it is verified, beside the one that was asked for."""
    if guarantee == "none":
        return "∞ for everybody, no privacy"
    bound = upper_bound(promised_epsilon(promise))
    kind = "verified" if guarantee == "verified" else "conditional: see privacy_summary.json"
    target = nominal(promise["epsilon_nominal"])
    return f"{bound} ({kind}), nominal {target}, δ = {promise['delta']:g}"


def _text_columns(frame: pd.DataFrame) -> list[str]:
    """The algorithm and the swept parameters."""
    return list(frame.columns[: frame.columns.get_loc(QUALITY)])


def _mean_and_std(row: Mapping[Hashable, Any], metric: Metric) -> str:
    mean, std, seeds = row[f"{metric.name}{_MEAN}"], row[f"{metric.name}{_STD}"], row["seeds"]
    if math.isnan(mean) or seeds == 1:  # of runs that trained no model, or that lack the metric
        return f"{metric.text(mean)} (n = {seeds})"
    return f"{metric.text(mean)} ± {metric.text(std)}"
