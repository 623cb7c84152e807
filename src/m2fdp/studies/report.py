"""What a study ends with: its runs compared, its figure, its claims judged, its searches listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from m2fdp.claims.declared import check_claims
from m2fdp.claims.frames import ARM, VERSION, select_runs
from m2fdp.claims.judging import judge
from m2fdp.claims.layout import Layout
from m2fdp.claims.measures import check_measure, check_own_metrics
from m2fdp.claims.measuring import measure_runs
from m2fdp.claims.pairs import paired_differences
from m2fdp.core.errors import InputError, among
from m2fdp.core.files import replacing
from m2fdp.core.formatting import counted
from m2fdp.reporting import attack_figures, claim_tables, panel_figures, panels
from m2fdp.reporting.figures import comparison
from m2fdp.reporting.pictures import write_pdf
from m2fdp.reporting.tables import (
    comparison_table,
    measure_table,
    measures_to_markdown,
    print_table,
    to_markdown,
)
from m2fdp.studies.grid import Cell, varied_keys
from m2fdp.studies.record import Record
from m2fdp.studies.search_report import at_ends, search_markdown
from m2fdp.studies.study import Board, Study
from m2fdp.studies.tracked_runs import expected_runs
from m2fdp.studies.whole import whole_markdown

REPORT = "report.md"


@dataclass(frozen=True)
class Report:
    """The comparison, the judged claims, and the files that hold them."""

    progress: str  # how many of the cells it is about
    at_ends: str  # of `m2fdp.studies.search_report.at_ends`
    table: pd.DataFrame
    judged: pd.DataFrame | None  # None where the study lists no claims
    pairs: pd.DataFrame  # of `paired_differences`
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Findings:
    """What the finished runs of a study say; figures are drawn where they are asked for."""

    study: Study
    record: Record
    table: pd.DataFrame  # of `comparison_table`
    measures: pd.DataFrame | None  # of `measure_table`; None where the study tabulates none
    judged: pd.DataFrame | None  # of `judge`; None where the study lists no claims
    pairs: pd.DataFrame  # of `paired_differences`

    @property
    def figure(self) -> Figure:
        """The study's own, or its runs compared."""
        study, record = self.study, self.record
        if study.figure is None:
            return comparison(record.rounds)
        return panel_figures.draw(study.figure, record.measured, record.rounds, _labels(study))

    @property
    def board(self) -> Figure | None:
        """What the runs have reconstructed, in the order of the arms; None where none is shown."""
        if self.study.board is None:
            return None
        labels, records = _labels(self.study), self.record.board
        names = [name for name in [*labels, ""] if name in records]
        shown = {labels.get(name, name): records[name] for name in names}
        return attack_figures.board(self.study.board.title, shown)


def check_report(study: Study, cells: Sequence[Cell]) -> None:
    """Refuse a figure or claims that ask for what the runs will not have.

    They are made from stand-ins for the runs, as they mix runs, or don't, by these columns alone.

    Args:
        cells: the cells of the whole study.

    Raises:
        InputError: naming the column, measure or name.
    """
    check_own_metrics()
    columns = varied_keys(study)
    names = {ARM: tuple(study.arms), VERSION: tuple(study.versions)}
    arms = {ARM: names[ARM]} if study.arms else {}
    check_claims(study.claims, columns, names[VERSION], values=arms)
    for claim in study.claims:
        check_measure(claim.measure, columns, study.target_accuracy)
    for name in study.table:
        check_measure(name, columns, study.target_accuracy)
    if study.figure is not None:
        panels.check_layout(study.figure, columns, study.target_accuracy)
        _check_names(study.figure, names)
    runs = expected_runs(cells, columns)
    history = runs.reset_index().assign(round=1)
    measured = measure_runs(runs, history, None, study.target_accuracy)
    judge(study.claims, measured, names[VERSION])
    if study.figure is not None:
        panels.panel_contents(study.figure, measured, _labels(study))
    if study.board is not None:
        one_run_an_arm(study.board, runs)


def _check_names(layout: Layout, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse panels of arms or versions that the study has not: they would stay empty."""
    for number, panel in enumerate(layout.panels):
        for column in names.keys() & panel.where.keys():
            selected = panel.where[column]
            for name in selected if isinstance(selected, list) else [selected]:
                if str(name) not in names[column]:
                    key = f"figure.panels.{number}.where.{column}"
                    raise InputError(key, name, f"is none of {among(name, names[column])}")


def _labels(study: Study) -> dict[str, str]:
    """What figures call the arms."""
    return {name: arm.label or name for name, arm in study.arms.items()}


def findings(study: Study, record: Record) -> Findings:
    """Compare the finished runs of a study, and judge its claims.

    Args:
        study: whose arms, versions and varied keys the runs have.
        record: what its runs say, read from MLflow or from files.

    Raises:
        InputError: as `judge`.
    """
    measured = record.measured
    return Findings(
        study,
        record,
        comparison_table(record.compared),
        measure_table(measured, study.table) if study.table else None,
        judge(study.claims, measured, tuple(study.versions)) if study.claims else None,
        paired_differences(measured),
    )


def one_run_an_arm(board: Board, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that a board shows.

    Raises:
        InputError: several of one arm.
    """
    chosen = select_runs(runs, board.where)
    twice = chosen[chosen[ARM].duplicated()] if ARM in chosen else chosen.iloc[1:]
    if len(twice):
        name = str(twice[ARM].iloc[0]) if ARM in twice else "(all)"
        raise InputError("board.where", name, "has several runs; name more columns")
    return chosen


def write_report(folder: Path, study: Study, command: str, cells: int, record: Record) -> Report:
    """Report on the runs in `folder`: tables, figure, claims, and `report.md`, which has all.

    Args:
        folder: the place of the study's own files.
        command: what ran the study.
        cells: how many runs the study has when it is complete.
        record: what the finished runs say.
    """
    results = findings(study, record)
    files = [
        _write(folder / "comparison.csv", results.table),
        _write(folder / "comparison.md", to_markdown(results.table)),
        *_write_figure(folder / "comparison.png", results.figure),
    ]
    progress = progress_of(record, cells)
    parts = [
        f"# {study.title}\n",
        f"```\n{command}\n```\n",
        f"{progress}; {run_time(record)}.\n",
        _shown(study.title, *files[-2:]),
    ]
    if (board := results.board) is not None:
        files += _write_figure(folder / "board.png", board)
        parts.append(_shown("What is reconstructed", *files[-2:]))
    parts += tables(results, "##", pairs=True)
    kept = {
        "measures": results.measures,
        "paired": results.pairs,
        "claims": results.judged,
        "search": record.search,
        "procedures": record.procedures,
    }
    for name, table in kept.items():
        if table is not None and len(table):
            files.append(_write(folder / f"{name}.csv", table))
    files.append(_write(folder / REPORT, "\n".join(parts)))
    ends = at_ends(record.search)
    return Report(progress, ends, results.table, results.judged, results.pairs, tuple(files))


def progress_of(record: Record, cells: int) -> str:
    """How many of a study's cells the record has."""
    verb = "is" if cells == 1 else "are"
    return f"{len(record.runs)} of {counted(cells, 'cell')} {verb} finished"


def run_time(record: Record) -> str:
    """How long the runs took."""
    minutes = counted(round(record.runs["seconds"].sum() / 60), "minute")
    return f"their run time, added up over the workers, is {minutes}"


def tables(results: Findings, level: str, *, pairs: bool) -> Iterator[str]:
    """What the runs say, in Markdown: comparison, measures, verdicts, how schedules were chosen.

    Args:
        level: what headings begin with.
        pairs: whether every two arms are compared, too.
    """
    record = results.record
    yield to_markdown(results.table)
    if results.measures is not None:
        yield measures_to_markdown(results.measures, results.study.table)
    if pairs and len(results.pairs):
        yield from (
            f"{level} Paired differences\n",
            claim_tables.pairs_markdown(results.pairs),
        )
    if results.judged is not None:
        yield f"{level} {claim_tables.heading(results.judged)}\n"
        yield claim_tables.to_markdown(results.judged)
    if len(record.search):
        yield from (f"{level} How schedules were chosen\n", search_markdown(record.search))
    if len(record.procedures):
        yield from (f"{level} ε of the whole procedure\n", whole_markdown(record.procedures))


def _write(path: Path, content: pd.DataFrame | str) -> Path:
    """A table as CSV, or text; whole or not at all. Returns the path."""
    with replacing(path) as unfinished:
        if isinstance(content, str):
            unfinished.write_text(content, encoding="utf-8")
        else:
            content.to_csv(unfinished, index=False)
    return path


def _write_figure(path: Path, figure: Figure) -> tuple[Path, Path]:
    """A figure as PNG, and as PDF beside it. Returns their paths."""
    printed = path.with_suffix(".pdf")
    with replacing(path) as unfinished:
        figure.savefig(unfinished)
    with replacing(printed) as unfinished:
        write_pdf(figure, unfinished)
    return path, printed


def _shown(title: str, png: Path, pdf: Path) -> str:
    return f"![{title}]({png.name})\n\nThe same as [PDF]({pdf.name}).\n"


def print_report(title: str, report: Report) -> None:
    """The table and the claims in the terminal, how far the study is, and where the files are."""
    console = Console(highlight=False)
    print_table(report.table, console, title)
    console.print(f"{report.progress}.")
    if report.at_ends:
        console.print(f"{report.at_ends} {REPORT} says which.")
    if report.judged is not None:
        claim_tables.print_claims(report.judged, console, claim_tables.heading(report.judged))
    for file in report.files:
        console.print(str(file), soft_wrap=True)


@dataclass(frozen=True)
class Summary:
    """A study among others."""

    name: str
    title: str
    report: Report


def write_summaries(folder: Path, summaries: Sequence[Summary]) -> Path:
    """`folder`/report.md: all studies' claims, and where each one's own report is."""
    parts = ["# Studies\n"]
    for summary in summaries:
        parts.append(f"## {summary.title}\n")
        parts.append(f"[{summary.name}]({summary.name}/{REPORT}): {summary.report.progress}.\n")
        if summary.report.judged is not None:
            parts.append(claim_tables.to_markdown(summary.report.judged))
    return _write(folder / REPORT, "\n".join(parts))


def print_summaries(summaries: Sequence[Summary], path: Path) -> None:
    """Every study's progress and claims in the terminal."""
    console = Console(highlight=False)
    for summary in summaries:
        console.print(Text(f"{summary.name}: {summary.title}", "bold"))
        console.print(f"{summary.report.progress}; {summary.report.files[-1]}", soft_wrap=True)
        if summary.report.judged is not None:
            claim_tables.print_claims(summary.report.judged, console, "")
    console.print(str(path), soft_wrap=True)
