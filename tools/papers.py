"""All studies of a paper, one after the other: `kedro study paper J`."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from m2fdp.core.config import flatten
from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import counted
from m2fdp.studies.report import findings
from m2fdp.studies.study import load_study
from tools.figure_table import Row, minutes, read_rows
from tools.pages import PAPERS, identity_of, words_of
from tools.records import record_files

_SUBSET = 10  # minutes
_MEGABYTES = 0.5  # of a run: its model, split and tables
_WHOLE = 100  # runs of a study without a record, at least


def run_paper(project: Path, paper: str | None, subset: bool, options: Mapping[str, Any]) -> None:
    """Tell what a paper's studies take, then run each as `kedro study` does, with --resume.

    Args:
        subset: only the quickest, as many as ten minutes have room for.
        options: those of `kedro study`: `params`, `workers`, `env`, of which each study has its
            own, and others, which have no part here.

    Raises:
        InputError: no such paper, or a study that did not finish.
    """
    if paper not in PAPERS:
        raise InputError("study paper", paper, f"is none of {among(paper, PAPERS)}")
    for name in options.keys() - {"params", "workers", "resume"}:
        if options[name]:
            raise InputError(f"--{name}", options[name], "has no part in `kedro study paper`")
    rows = [row for row in read_rows(project) if row.figure.split()[0] == paper]
    chosen = chosen_of({row.study: _minutes(project, row) for row in rows}, subset)
    total = sum(chosen.values())
    runs = sum(_runs(project, words) for words in chosen)
    disk = max(1, round(runs * _MEGABYTES / 1024))
    click.echo(
        f"{paper}: {counted(len(chosen), 'study', 'studies')}, {counted(runs, 'run')} or more, "
        f"about {counted(total, 'minute')} on two cores, and {disk} GB in data and mlruns."
    )
    words_of_options = ["--resume"]
    if options.get("params"):
        params = flatten(dict(options["params"])).items()
        words_of_options.append("--params=" + ",".join(f"{key}={value}" for key, value in params))
    if options.get("workers"):
        words_of_options.append(f"--workers={options['workers']}")
    failed = []
    for words, takes in chosen.items():
        click.echo(f"kedro study {words}: about {counted(takes, 'minute')}")
        command = [sys.executable, "-m", "kedro", "study", *words.split(), *words_of_options]
        if subprocess.run(command, cwd=project, check=False).returncode:
            failed.append(words)
    if failed:
        raise InputError("studies", ", ".join(failed), "did not finish; the same command goes on")


def chosen_of(minutes_of: Mapping[str, int], subset: bool) -> dict[str, int]:
    """The studies to run, in order, with their minutes; of a subset the quickest that fit."""
    quickest, left = set(), _SUBSET
    for words, takes in sorted(minutes_of.items(), key=lambda item: item[1]):
        if takes <= left:
            quickest.add(words)
            left -= takes
    return {words: takes for words, takes in minutes_of.items() if not subset or words in quickest}


def _minutes(project: Path, row: Row) -> int:
    files = record_files(project, identity_of(row.study))
    if row.minutes is not None or not files.exists:
        return row.minutes or 0
    study = load_study(project / "conf", *words_of(row.study))
    return minutes(findings(study, files.read()))


def _runs(project: Path, words: str) -> int:
    files = record_files(project, identity_of(words))
    return len(files.read().runs) if files.exists else _WHOLE
