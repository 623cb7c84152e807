"""A counted search has all its candidates from the start: what others have shown comes on top."""

from __future__ import annotations

from collections.abc import Sequence

from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted
from m2fdp.studies.grid import Setting, points
from m2fdp.studies.launcher import search_runs
from m2fdp.studies.search import Candidate, next_candidates

SEARCHING = {"stage": "search"}  # a tag of runs that only serve a choice


def check_none_else(setting: Setting, candidates: Sequence[Candidate]) -> None:
    """Refuse to go on with a counted search that once had other candidates, and so other targets:
    their runs, finished or not, were seen, and no ledger has them.

    Args:
        candidates: those of the searches that wait for a choice.

    Raises:
        InputError: MLflow has such runs.
    """
    arms = {(one.point.version, one.point.arm) for one in candidates if one.counted}
    known = {cell.hash for one in candidates for cell in one.cells}
    others = _others(setting, arms, known)
    if not others:
        return
    # Only some of the study's points may be due, and the others have candidates of their own.
    every = next_candidates(setting, tuple(points(setting.study)), {}, ())
    others = _others(setting, arms, {cell.hash for one in every for cell in one.cells})
    if others:
        raise InputError(
            f"study.{setting.name}.search.counted",
            True,
            f"counts the candidates that there are now, and {counted(len(others), 'run')} of this "
            f"search had other settings, such as {others[0]}: restore them, or leave --resume out, "
            "which searches anew on top of what was seen",
        )


def _others(
    setting: Setting, arms: set[tuple[str | None, str | None]], known: set[str]
) -> list[str]:
    """The names of a study's searching runs of some versions and arms that are of no known cell."""
    if not arms:
        return []
    stage = SEARCHING["stage"]
    found = search_runs(f"tags.study = '{setting.name}' and tags.stage = '{stage}'")
    return [
        str(run.info.run_name)
        for run in found
        if (run.data.tags.get("version"), run.data.tags.get("arm")) in arms
        and run.data.tags.get("cell_hash") not in known
    ]
