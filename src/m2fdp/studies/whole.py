"""Epsilon of whole procedures: of a run that is released, and of the search that chose it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

import pandas as pd

from m2fdp.core.experiment.checks import check_config
from m2fdp.core.formatting import lowest, verified
from m2fdp.reporting.tables import markdown
from m2fdp.selection.procedures import procedure_of
from m2fdp.studies.grid import Cell, place_of_choice
from m2fdp.studies.search import Candidate
from m2fdp.studies.study import Study

_KEYS = ["version", "arm", "observer", "kind", "distrusted", "runs"]


def whole_table(
    study: Study,
    cells: Sequence[Cell],
    tried: Sequence[Candidate],
    guarantees: Mapping[str, str],
) -> pd.DataFrame:
    """One row an arm of a version, whose runs are private and whose schedule was searched, and an
    observer: the largest epsilon over seeds, of the released run and of it with its search.

    Columns: version, arm, observer, kind, distrusted, runs; epsilon and guarantee of all these
    runs, and the same of the released one. Epsilon is infinite where scores or held-out records
    are in clear, and the guarantee is the lowest.
    Rows whose search is counted name observers; others have one row, of whomever the study
    distrusts.

    Args:
        cells: those whose runs are released.
        tried: what was tried to choose their schedules.
        guarantees: what runs have promised, by the hashes of their cells.
    """
    rows = pd.DataFrame(
        [row for cell in cells for row in _rows(study, cell, tried, guarantees)],
        columns=[*_KEYS, "epsilon_released", "epsilon", "guarantee_released", "guarantee"],
    )
    groups = rows.groupby(_KEYS, sort=False, dropna=False)
    return groups.agg(
        epsilon_released=("epsilon_released", "max"),
        epsilon=("epsilon", "max"),
        guarantee_released=("guarantee_released", lowest),
        guarantee=("guarantee", lowest),
    ).reset_index()


def _rows(
    study: Study, cell: Cell, tried: Sequence[Candidate], guarantees: Mapping[str, str]
) -> Iterator[dict[str, object]]:
    place = place_of_choice(study, cell.point)
    candidates = [each for each in tried if each.place == place]
    if place is None or not candidates or not check_config(cell.config).private:
        return
    own = lowest([guarantees.get(cell.hash, "")])
    names = {
        "version": cell.point.version or "",
        "arm": cell.point.arm,
        "guarantee_released": own,
    }
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
        "observer": "whoever is distrusted",
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
        "ε of the whole counts the search with the run whose schedule it chose. It is that of the "
        "released run where the search read other, public records, and none where held-out records "
        "and the accuracies on them are in clear.\n\n"
    )
    return lines + markdown(pd.DataFrame(rows), ["version", "arm", "observer"])
