"""What a study ends with: its runs compared, its figure, its claims judged, its searches listed; in
files, in the terminal and on the page of its run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from mlflow import MlflowClient
from mlflow.entities import Run
from rich.console import Console
from rich.text import Text

from m2fdp.claims.declared import check_claims
from m2fdp.claims.frames import ARM, TAGS, VERSION
from m2fdp.claims.judging import judge
from m2fdp.claims.measures import check_measure, check_own_metrics
from m2fdp.claims.measuring import measure_runs, paired_differences
from m2fdp.core.errors import InputError, among
from m2fdp.core.files import replacing
from m2fdp.core.formatting import counted
from m2fdp.pipelines import pages
from m2fdp.pipelines.pages import DESCRIPTION, LONGEST, artifact_link, picture
from m2fdp.reporting import claim_tables, panel_figures, panels, room_figures
from m2fdp.reporting.figures import comparison
from m2fdp.reporting.pictures import write_pdf
from m2fdp.reporting.tables import (
    comparison_table,
    measure_table,
    measures_to_markdown,
    print_table,
    to_markdown,
)
from m2fdp.studies.grid import Cell, points, varied_keys
from m2fdp.studies.search_report import at_ends, search_markdown, whole_markdown
from m2fdp.studies.study import Study
from m2fdp.studies.tracked_runs import Record, expected_runs, one_run_an_arm

REPORT, FIGURE = "report.md", "comparison.png"
_MOST_LISTED = 500  # runs; MLflow takes 20,000 characters of a view
_MOST_FAILED = 10  # cells that are told with their reasons
_PAIRS = "Paired differences"


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
    def progress(self) -> str:
        """How many of the study's cells are finished."""
        cells = sum(1 for _ in points(self.study))
        verb = "is" if cells == 1 else "are"
        return f"{len(self.record.runs)} of {counted(cells, 'cell')} {verb} finished"

    @property
    def run_time(self) -> str:
        """How long the runs took."""
        minutes = counted(round(self.record.runs["seconds"].sum() / 60), "minute")
        return f"their run time, added up over the workers, is {minutes}"

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
        labels = {**_labels(self.study), "": ""}
        boards = self.record.board
        shown = {label: boards[name] for name, label in labels.items() if name in boards}
        return room_figures.board(self.study.board.title, shown)


def check_report(study: Study, cells: Sequence[Cell]) -> None:
    """Refuse a figure or claims that ask for what the runs will not have, by stand-ins for them."""
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
        for number, panel in enumerate(study.figure.panels):
            for column in names.keys() & panel.where.keys():  # others would stay empty
                selected = panel.where[column]
                for name in selected if isinstance(selected, list) else [selected]:
                    if str(name) not in names[column]:
                        key = f"figure.panels.{number}.where.{column}"
                        raise InputError(key, name, f"is none of {among(name, names[column])}")
    runs = expected_runs(cells, columns)
    history = runs.reset_index().assign(round=1)
    measured = measure_runs(runs, history, None, study.target_accuracy)
    judge(study.claims, measured, names[VERSION])
    if study.figure is not None:
        panels.panel_contents(study.figure, measured, _labels(study))
    if study.board is not None:
        one_run_an_arm(study.board, runs)


def _labels(study: Study) -> dict[str, str]:
    """What figures call the arms."""
    return {name: arm.label or name for name, arm in study.arms.items()}


def findings(study: Study, record: Record) -> Findings:
    """Compare the finished runs of a study, and judge its claims."""
    measured = record.measured
    tried, versions = tuned(study, record.search), tuple(study.versions)
    judged = judge(study.claims, measured, versions, tried, study.decides)
    return Findings(
        study,
        record,
        comparison_table(record.compared),
        measure_table(measured, study.table) if study.table else None,
        judged if study.claims else None,
        paired_differences(measured),
    )


def tuned(study: Study, search: pd.DataFrame) -> Counter[tuple[str, str]]:
    """How many schedules a search has tried, by version and arm, and whose it starts from."""
    rows = search.to_dict("records")
    told = dict.fromkeys((str(r[VERSION]), str(r[ARM]), r["schedule"]) for r in rows)
    counts = Counter((version, arm) for version, arm, _ in told)
    for version, arm in list(counts):
        block = study.versions[version].search if version in study.versions else None
        space = block and block.spaces.get(study.arms[arm].space or "")
        counts[version, arm] += counts[version, (space and space.schedule_of) or ""]
    return counts


def write_report(folder: Path, command: str, found: Findings) -> tuple[Path, ...]:
    """Report on the runs in `folder`, last in `report.md`, which has all; returns the files."""
    study, record = found.study, found.record
    files = [
        _write(folder / "comparison.csv", found.table),
        _write(folder / "comparison.md", to_markdown(found.table)),
    ]
    how_far = f"{found.progress}; {found.run_time}.\n"
    parts = [f"# {study.title}\n", f"```\n{command}\n```\n", how_far]
    figures = {"comparison": (study.title, found.figure)}
    if (board := found.board) is not None:
        figures["board"] = ("What is reconstructed", board)
    for name, (title, figure) in figures.items():
        path, printed = folder / f"{name}.png", folder / f"{name}.pdf"
        with replacing(path) as unfinished:
            figure.savefig(unfinished)
        with replacing(printed) as unfinished:
            write_pdf(figure, unfinished)
        files += [path, printed]
        parts.append(f"![{title}]({path.name})\n\nThe same as [PDF]({printed.name}).\n")
    parts += tables(found, "##", pairs=True)
    kept = {"measures": found.measures, "paired": found.pairs, "claims": found.judged}
    for name, table in (kept | {"search": record.search, "procedures": record.procedures}).items():
        if table is not None and len(table):
            files.append(_write(folder / f"{name}.csv", table))
    return (*files, _write(folder / REPORT, "\n".join(parts)))


def tables(results: Findings, level: str, *, pairs: bool) -> Iterator[str]:
    """What the runs say, in Markdown: comparison, measures, verdicts, how schedules were chosen."""
    yield to_markdown(results.table)
    if results.measures is not None:
        yield measures_to_markdown(results.measures, results.study.table)
    for heading, text in _sections(results).items():
        if pairs or heading != _PAIRS:
            yield from (f"{level} {heading}\n", text)


def _sections(found: Findings) -> dict[str, str]:
    """What else there is to say, in Markdown, by its heading."""
    sections, record = {}, found.record
    if len(found.pairs):
        sections[_PAIRS] = claim_tables.pairs_markdown(found.pairs)
    if found.judged is not None:
        sections[claim_tables.heading(found.judged)] = claim_tables.to_markdown(found.judged)
    if len(record.search):
        sections["How schedules were chosen"] = search_markdown(record.search)
    if len(record.procedures):
        sections["ε of the whole procedure"] = whole_markdown(record.procedures)
    return sections


def _write(path: Path, content: pd.DataFrame | str) -> Path:
    """A table as CSV, or text; whole or not at all. Returns the path."""
    with replacing(path) as unfinished:
        if isinstance(content, str):
            unfinished.write_text(content, encoding="utf-8")
        else:
            content.to_csv(unfinished, index=False)
    return path


def print_report(found: Findings, files: Sequence[Path]) -> None:
    """The table and the claims in the terminal, how far the study is, and where the files are."""
    console = Console(highlight=False)
    print_table(found.table, console, found.study.title)
    console.print(f"{found.progress}.")
    if ends := at_ends(found.record.search):
        console.print(f"{ends} {REPORT} says which.")
    if found.judged is not None:
        claim_tables.print_claims(found.judged, console, claim_tables.heading(found.judged))
    for file in files:
        console.print(str(file), soft_wrap=True)


def summarise(folder: Path, studies: Mapping[str, Findings]) -> None:
    """Every study's progress and claims in the terminal, and in `folder`/report.md."""
    console, parts = Console(highlight=False), ["# Studies\n"]
    for name, found in studies.items():
        console.print(Text(f"{name}: {found.study.title}", "bold"))
        console.print(f"{found.progress}; {folder / name / REPORT}", soft_wrap=True)
        parts.append(f"## {found.study.title}\n")
        parts.append(f"[{name}]({name}/{REPORT}): {found.progress}.\n")
        if found.judged is not None:
            claim_tables.print_claims(found.judged, console, "")
            parts.append(claim_tables.to_markdown(found.judged))
    console.print(str(_write(folder / REPORT, "\n".join(parts))), soft_wrap=True)


def describe_study(
    client: MlflowClient,
    parent: Run,
    title: str,
    command: str,
    found: Findings | None,
    failed: Mapping[str, str],
) -> None:
    """Write what a study found on the page of its run."""
    run_id, experiment = parent.info.run_id, parent.info.experiment_id
    parts, sections = [title], []
    if failed:
        lines = [f"- {name}: {why}" for name, why in list(failed.items())[:_MOST_FAILED]]
        if omitted := len(failed) - len(lines):
            lines.append(f"- and {omitted} more")
        parts.append("\n".join([f"**{counted(len(failed), 'failed cell')}:**\n", *lines]))
    if found is not None:
        study = parent.data.tags["study"]
        charts, table = (pages.view_link(experiment, study, mode) for mode in ("CHART", "TABLE"))
        parts += [
            f"{found.progress}. Their comparison: [as charts]({charts}), [as a table]({table}); "
            f"{artifact_link(experiment, run_id, REPORT, 'the whole report')}.",
            to_markdown(found.table).rstrip(),
            picture(run_id, FIGURE, title),
        ]
        texts = _sections(found)
        first = [] if found.judged is None else [claim_tables.heading(found.judged)]
        shown = (heading for heading in (*first, _PAIRS) if heading in texts)
        sections = [f"## {heading}\n\n{texts[heading].rstrip()}" for heading in shown]
    parts.append(f"```\n{command}\n```")
    for section in sections:  # as far as there is room
        if len("\n\n".join([*parts, section])) <= LONGEST:
            parts.append(section)
    client.set_tag(run_id, DESCRIPTION, "\n\n".join(parts)[:LONGEST])


def save_view(
    client: MlflowClient, parent: Run, run_ids: Sequence[str], varied: Sequence[str]
) -> None:
    """Keep the comparison of a study's runs as a view of MLflow's, which the study's page links."""
    keys = ["algorithm", *(key for key in varied if key not in ("algorithm", "seed"))]
    study = parent.data.tags["study"]
    listed = ", ".join(f"'{run_id}'" for run_id in run_ids)
    chosen = f"attributes.run_id IN ({listed})"
    if len(run_ids) > _MOST_LISTED:
        chosen = f"tags.study = '{study}' and attributes.status = 'FINISHED'"
    columns = [f"{'tags' if key in TAGS else 'params'}.`{key}`" for key in [*keys, "seed"]]
    groups = [{"mode": "tag" if key in TAGS else "param", "groupByData": key} for key in keys]
    grouped = {"aggregateFunction": "average", "groupByKeys": groups}
    more = {"orderByKey": "metrics.`accuracy`", "groupBy": grouped}
    pages.save_view(client, parent.info.experiment_id, study, chosen, columns, **more)
