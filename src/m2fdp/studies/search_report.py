"""What a study's searches have chosen, from what, and at what price of privacy: epsilon of whole
procedures, of a run that is released and of the search that chose it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import pandas as pd

from m2fdp.claims.measures import MEASURES
from m2fdp.core.formatting import counted, lowest, verified
from m2fdp.reporting.tables import markdown
from m2fdp.studies.grid import Cell, choice_of
from m2fdp.studies.search import Candidate, procedure_of
from m2fdp.studies.study import Study

_OF_OWN_RECORDS = (
    "eld-out records lie in clear with the cloud: ε counts a released run, not the search that "
    "chose its schedule on records that the run then trains on."
)
_OF_COUNTED = (
    "Counted searches and the released run keep ε together: devices hold records out, and send "
    "noised counts of those that the model gets right, the accuracy below."
)
# What a schedule is chosen for.
_OF_CHOICE = ["version", "arm", "values"]
_OF_PROCEDURE = ["version", "arm", "observer", "kind", "distrusted", "runs"]


def search_markdown(table: pd.DataFrame) -> str:
    """What was chosen for whom from how many candidates, and the search's budget, in Markdown."""
    costs = [name for name in table["by"].unique() if name != "accuracy"]
    means = "their mean accuracy"
    if costs:
        named = " or ".join(MEASURES[name].label for name in costs)
        target = ", ".join(f"{value:g}" for value in table["target"].unique())
        means = f"their mean {named} of {target}, of those that reach it with the most seeds,"
    proxies, behind_noise = table["others"] != "", table["counted"]
    others = proxies | behind_noise
    sentences = [
        f"Schedules were chosen by {means} on training records that were held out and "
        f"that no run of the search trained on: {table['new_runs'].sum()} runs. The released runs "
        "train on all training records.",
        *(_of_proxies(table[proxies]) if proxies.any() else ()),
        *([_OF_COUNTED] if behind_noise.any() else ()),
        *([("Else h" if others.any() else "H") + _OF_OWN_RECORDS] if not others.all() else ()),
        *filter(None, [at_ends(table)]),
    ]
    lines = [
        " ".join(sentences) + "\n",
        "| version | arm | grid | candidates | seeds | chosen schedule | held-out "
        + ("to the target |" if costs else "accuracy |"),
        "|---|---|---|---:|---:|---|---:|",
    ]
    for (version, arm, values), rows in table.groupby(_OF_CHOICE, sort=False):
        chosen = rows[rows["chosen"]]
        row = rows.iloc[0] if chosen.empty else chosen.iloc[0]
        schedule, held_out = "none finished", "–"
        if not chosen.empty:
            at_end, held_out = ends(rows), _held_out(row)
            schedule = ", ".join(
                f"{key}={json.dumps(value)}" + (f" ({at_end[key]} tried)" if key in at_end else "")
                for key, value in _values(row["schedule"]).items()
            )
        lines.append(
            f"| {version} | {arm} | {values} | {len(rows)} | {row['seeds']} | {schedule} "
            f"| {held_out} |"
        )
    return "\n".join(lines) + "\n"


def at_ends(table: pd.DataFrame) -> str:
    """How many choices lie where what was tried ends, a sentence; empty where none does."""
    if table.empty:
        return ""
    choices = [rows for _, rows in table.groupby(_OF_CHOICE, sort=False) if rows["chosen"].any()]
    n = sum(bool(ends(rows)) for rows in choices)
    if not n:
        return ""
    take = "takes" if n == 1 else "take"
    return (
        f"{n} of {counted(len(choices), 'schedule')} {take} the largest or smallest value tried of "
        "a parameter: one beyond may be better."
    )


def ends(rows: pd.DataFrame) -> dict[str, str]:
    """By parameter of the schedule that was chosen among these candidates: "largest" or "smallest",
    where its number is that of all candidates that agree with it in every other parameter."""
    chosen = _values(rows.loc[rows["chosen"], "schedule"].iloc[0])
    tried, found = [*map(_values, rows["schedule"])], {}
    for key, value in chosen.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        beside = {each[key] for each in tried if key in each and each | {key: value} == chosen}
        if len(beside) > 1 and value in (min(beside), max(beside)):
            found[key] = "largest" if value == max(beside) else "smallest"
    return found


def _values(schedule: str) -> dict[str, Any]:
    """The parameters that a table has as text."""
    decoder, values, rest = json.JSONDecoder(), {}, schedule
    while rest:
        key, _, text = rest.partition("=")
        values[key], end = decoder.raw_decode(text)
        rest = text[end:].removeprefix(", ")
    return values


def _of_proxies(table: pd.DataFrame) -> Iterator[str]:
    """On what other records schedules were chosen, a sentence each."""
    for others, rows in table.groupby("others", sort=False):
        names = ", ".join(dict.fromkeys(rows["version"].dropna())) or "the study"
        yield (
            f"Those of private arms of {names} were chosen on other records ({others}): the ε of a "
            "released run is that of the whole procedure, if those are public."
        )


def _held_out(row: pd.Series) -> str:
    """What the held-out records said of the schedule that was chosen."""
    if row["by"] == "accuracy":
        spread = f" ± {row['accuracy_std']:.3f}" if row["seeds"] > 1 else ""
        return f"{row['accuracy_mean']:.3f}{spread}"
    if not row["reached"]:
        return "not reached"
    spread = f" ± {row['cost_std']:.3g}" if row["reached"] > 1 else ""
    unit = MEASURES[row["by"]].unit
    return f"{row['cost_mean']:.3g}{spread} {unit} (n = {row['reached']})"


def whole_table(
    study: Study, cells: Sequence[Cell], tried: Sequence[Candidate], guarantees: Mapping[str, str]
) -> pd.DataFrame:
    """One row an arm of a version, whose runs are private and whose schedule was searched, and an
    observer: the largest epsilon over seeds, of the released run and of it with its search, with
    the lowest guarantee. Epsilon is infinite where held-out records are in clear.
    """
    over_seeds: dict[str, Any] = {"epsilon_released": "max", "epsilon": "max"}
    over_seeds |= {"guarantee_released": lowest, "guarantee": lowest}
    rows = [row for cell in cells for row in _rows(study, cell, tried, guarantees)]
    table = pd.DataFrame(rows, columns=[*_OF_PROCEDURE, *over_seeds])
    groups = table.groupby(_OF_PROCEDURE, sort=False, dropna=False)
    return groups.agg(over_seeds).reset_index()


def _rows(
    study: Study, cell: Cell, tried: Sequence[Candidate], guarantees: Mapping[str, str]
) -> Iterator[dict[str, object]]:
    choice = choice_of(study, cell.point)
    candidates = [each for each in tried if choice and each.choice.place == choice.place]
    if not candidates or not cell.private:
        return
    own = lowest([guarantees.get(cell.hash, "")])
    names = {"version": cell.point.version or "", "arm": cell.point.arm, "guarantee_released": own}
    if candidates[0].counted:
        of_search = [each.cells[0] for each in candidates]
        lines = procedure_of(cell.config, [each.config for each in of_search]).lines()
        guarantee = lowest([own, *(guarantees.get(each.hash, "") for each in of_search)])
        for line in lines.to_dict("records"):
            of_all = {str(key): value for key, value in line.items()}
            yield {**names, **of_all, "guarantee": guarantee}
        return
    spared = all(each.others for each in candidates)
    target = cell.config.privacy.epsilon
    yield names | {
        "observer": "whom the promise binds",
        "kind": "",
        "distrusted": True,
        "runs": 1 if spared else 1 + sum(len(each.cells) for each in candidates),
        "epsilon_released": target,
        "epsilon": target if spared else inf,
        "guarantee": own,
    }


def whole_markdown(table: pd.DataFrame) -> str:
    """What distrusted observers, and whoever is handed the final model, learn of a whole procedure,
    in Markdown."""
    shown = table[table["distrusted"] | (table["kind"] == "public")]
    rows = [
        {
            "version": row["version"],
            "arm": row["arm"],
            "observer": row["observer"],
            "runs on its records": str(row["runs"]),
            "ε of the released run": verified(row["guarantee_released"], row["epsilon_released"]),
            "ε of the whole": (
                "none" if row["epsilon"] == inf else verified(row["guarantee"], row["epsilon"])
            ),
        }
        for row in shown.to_dict("records")
    ]
    lines = (
        "ε of the whole counts the search with the run whose schedule it chose, and is none where "
        "held-out records and the accuracies on them are in clear.\n\n"
    )
    return lines + markdown(pd.DataFrame(rows), ["version", "arm", "observer"])
