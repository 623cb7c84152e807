"""What a study ends with: one comparison of its runs as a table and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pandas as pd
from rich.console import Console

from m2fdp.reporting.figures import comparison
from m2fdp.reporting.tables import comparison_table, print_table, to_markdown
from m2fdp.studies.records import load_history, load_runs


@dataclass(frozen=True)
class Report:
    """The comparison, and the files that hold it."""

    table: pd.DataFrame
    files: tuple[Path, ...]  # CSV, Markdown, figure


def write_report(folder: Path, run_ids: Sequence[str], varied: Sequence[str]) -> Report:
    """Compare the runs in `folder`/comparison.{csv,md,png}, also artifacts of the active run.

    Args:
        folder: of the study's own files.
        run_ids: MLflow's ids of the finished runs.
        varied: what tells the runs apart, as `load_runs` takes it.
    """
    table = comparison_table(load_runs(run_ids, varied))
    figure = comparison(load_history(run_ids, varied))
    folder.mkdir(parents=True, exist_ok=True)
    csv, markdown, png = (folder / f"comparison.{suffix}" for suffix in ("csv", "md", "png"))
    table.to_csv(csv, index=False)
    markdown.write_text(to_markdown(table))
    figure.savefig(png)
    for file in (csv, markdown, png):
        mlflow.log_artifact(str(file))
    return Report(table, (csv, markdown, png))


def print_report(title: str, report: Report) -> None:
    """The table in the terminal, and where its files are."""
    console = Console(highlight=False)
    print_table(report.table, console, title)
    csv, markdown, figure = report.files
    console.print(f"Figure: {figure}", soft_wrap=True)
    console.print(f"Table: {csv}, {markdown}", soft_wrap=True)
