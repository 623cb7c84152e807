"""The files of studies' records, which are kept beside the pages that quote them.

A store of runs is on one machine and does not last. The files are small: one line a run, with the
code, the configuration and the split that it comes from; and, where they are needed, one a round,
what searches have seen, and what attacks have reconstructed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from m2fdp.claims.declared import ACCURACY, LOSS
from m2fdp.claims.frames import RUN_COLUMNS, TAGS
from m2fdp.claims.measures import MEASURES
from m2fdp.core.errors import InputError
from m2fdp.core.files import replacing, shown
from m2fdp.core.formatting import lowest
from m2fdp.core.metrics import DELAY, ENERGY, METRICS, OWN
from m2fdp.own.metrics import own_metrics
from m2fdp.studies.tracked_runs import ORIGIN, Record

RUN = "run"
_OF_ROUNDS = ("run_id", "round", ACCURACY, LOSS, ENERGY.name, DELAY.name)  # that figures show
_TEXTS = {name: str for name in (RUN, *TAGS, "role", "privacy", *ORIGIN[1:])}
_OF_SEARCH = {name: str for name in (*TAGS, "values", "schedule", "others", "observer", "kind")}


@dataclass(frozen=True)
class RecordFiles:
    """The files of a study's record.

    Attributes:
        folder: that of all records.
        identity: the study's name, followed by `-<env>` where it is another's.
    """

    folder: Path
    identity: str

    def path(self, part: str) -> Path:
        """The file of the runs (""), of `rounds`, `search`, `procedures` or `board`."""
        name = "-".join(filter(None, (self.identity, part)))
        return self.folder / (f"{name}.json" if part == "board" else f"{name}.csv")

    @property
    def exists(self) -> bool:
        """Whether there is a record."""
        return self.path("").is_file()

    def digest(self) -> str:
        """SHA-256 of what they hold."""
        content = hashlib.sha256()
        for part in ("", "rounds", "search", "procedures", "board"):
            if self.path(part).is_file():
                content.update(part.encode() + self.path(part).read_bytes())
        return content.hexdigest()

    def write(self, record: Record) -> list[Path]:
        """Each table as CSV, numbers to the last digit; files of what is not there are taken away.

        Returns:
            The files.
        """
        history = record.rounds
        if len(history):
            history = history[[name for name in (*_OF_ROUNDS, *OWN) if name in history]]
            history = history.rename(columns={"run_id": RUN})
        parts: dict[str, pd.DataFrame | Mapping[str, Any]] = {
            "": record.runs.rename_axis(RUN).reset_index(),
            "rounds": history,
            "search": record.search,
            "procedures": record.procedures,
            "board": record.board,
        }
        files = []
        for part, content in parts.items():
            if not len(content):
                self.path(part).unlink(missing_ok=True)
                continue
            with replacing(self.path(part)) as unfinished:
                if isinstance(content, Mapping):
                    unfinished.write_text(json.dumps(content) + "\n", encoding="utf-8")
                else:
                    content.to_csv(unfinished, index=False, lineterminator="\n")
            files.append(self.path(part))
        return files

    def read(self) -> Record:
        """What `write` has written.

        Raises:
            InputError: no such record, or a file that is none of one.
        """
        runs = self._table("", _TEXTS)
        lacking = [name for name in (RUN, *RUN_COLUMNS, *ORIGIN) if name not in runs]
        if lacking:
            raise InputError(shown(self.path("")), lacking[0], "is no column there; publish anew")
        runs = runs.fillna(dict.fromkeys(ORIGIN[1:], "")).set_index(RUN).rename_axis("run_id")
        own_metrics([name for name in METRICS if name in runs])  # tables know them by these
        swept = [n for n in runs if n not in (*RUN_COLUMNS, *MEASURES, *ORIGIN, *OWN)]
        rounds = self._table("rounds", {RUN: str}).rename(columns={RUN: "run_id"})
        if len(rounds):
            of_runs = runs[["algorithm", "seed", *swept]].reset_index()
            rounds = of_runs.merge(rounds, on="run_id")
        search, procedures = (
            self._table(part, _OF_SEARCH).fillna(_BLANK) for part in ("search", "procedures")
        )
        if len(procedures) and "guarantee" not in procedures:  # of 0.19 or before
            told = runs.reindex(columns=[*TAGS, "privacy"]).fillna("")
            of_arms = told.groupby([*TAGS])["privacy"].agg(lowest)
            keys = zip(*(procedures[name] for name in TAGS), strict=True)
            known = [of_arms.get(key, lowest([])) for key in keys]
            procedures = procedures.assign(guarantee_released=known, guarantee=known)
        board = self.path("board")
        pictures = json.loads(board.read_text(encoding="utf-8")) if board.is_file() else {}
        return Record(runs, rounds, search, procedures, pictures)

    def _table(self, part: str, texts: Mapping[str, Any]) -> pd.DataFrame:
        path = self.path(part)
        if not path.is_file():
            return pd.DataFrame()
        try:
            return pd.read_csv(path, dtype=dict(texts), na_values=[""], keep_default_na=False)
        except ValueError as error:  # of pandas' parser, too
            reason = " ".join(str(error).split())
            raise InputError(shown(path), "(content)", f"is no table of CSV: {reason}") from None


_PARTS = ("-rounds", "-search", "-procedures")
_BLANK = dict.fromkeys(_OF_SEARCH, "")


def record_files(project: Path, identity: str) -> RecordFiles:
    """The record of a study of a project."""
    return RecordFiles(project / "docs" / "results" / "runs", identity)


def recorded(project: Path) -> list[str]:
    """The identities of all studies with a record."""
    files = record_files(project, "").folder.glob("*.csv")
    return sorted(path.stem for path in files if not path.stem.endswith(_PARTS))
