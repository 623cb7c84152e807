"""Pages and figures made from the records of studies, or compared with them."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import pandas as pd

from m2fdp.claims.frames import ARM, VERSION
from m2fdp.core.files import replacing, shown
from m2fdp.core.formatting import parameter, upper_bound
from m2fdp.reporting.tables import markdown, to_markdown
from m2fdp.studies.report import Findings, findings
from m2fdp.studies.study import BASE_ENV, Study, load_study
from m2fdp.studies.tracked_runs import CHANGED, Record
from tools.figure_table import MOST_ROWS, cells, claims_table, progress, read_rows, verified_version
from tools.pages import (
    CLAIMS,
    DOCS,
    STUDY,
    Page,
    identity_of,
    linked,
    read_pages,
    recorded,
    words_of,
)
from tools.records import RecordFiles, record_files

_KEY = "Record"  # of a figure's digest, among the texts of a PNG file
_SHORT = 7  # digits of a commit
_LONGEST = 150  # characters of a line that disagrees
_MOST_LISTED = 16  # rows of what is folded away


@dataclass(frozen=True)
class Results:
    """The pages of a project, with their records and figures."""

    project: Path

    @property
    def docs(self) -> Path:
        """The folder of all pages."""
        return self.project / DOCS

    @property
    def pages(self) -> list[Page]:
        """As they are now."""
        return read_pages(self.docs)

    @property
    def recorded(self) -> dict[str, str]:
        """The studies that a page has a block of, by identity: the words of the block."""
        return recorded(self.pages)

    def files(self, identity: str) -> RecordFiles:
        """The record of a study."""
        return record_files(self.project, identity)

    def figures(self, words: str) -> list[tuple[str, Path]]:
        """The titles and files of a study's figure and, where it has one, of its board."""
        study, images = self.study(words), self.docs / "images"
        found = [(study.title, images / f"{identity_of(words)}.png")]
        if study.board is not None:
            found.append((study.board.title, images / f"{identity_of(words)}-board.png"))
        return found

    def study(self, words: str) -> Study:
        """That of a block or command."""
        return load_study(self.project / "conf", *words_of(words))


def publish(project: Path, identity: str | None) -> None:
    """Write a study's record from its finished runs, then all figures and blocks from records.

    Args:
        identity: the study's; None = records are as they are.

    Raises:
        InputError: none of its runs is finished, or a record can't be read.
    """
    results = Results(project)
    written = []
    if identity is not None:
        from m2fdp.studies.command import finished_record  # imports torch

        study, record = finished_record(project, identity)
        if results.files(identity).exists:
            record = with_versions(record, results.files(identity).read(), study)
        click.echo(f"{findings(study, record).progress}.")
        written += results.files(identity).write(record)
    for identity, words in results.recorded.items():
        study, files = results.study(words), results.files(identity)
        if not files.exists:
            continue
        paths, digest = [path for _, path in results.figures(words)], _digest(study, files)
        if any(digest_of(path) != digest for path in paths):
            found = findings(study, files.read())
            for path, figure in zip(paths, filter(None, (found.figure, found.board)), strict=True):
                with replacing(path) as unfinished:
                    figure.savefig(unfinished, metadata={_KEY: digest})
                written.append(path)
    for page, made in zip(results.pages, rendered(results), strict=True):
        if made.text != page.text:
            with replacing(page.path) as unfinished:
                unfinished.write_text(made.text, encoding="utf-8")
            written.append(page.path)
    for path in written:
        click.echo(shown(path))


def with_versions(record: Record, before: Record, study: Study) -> Record:
    """A record with those versions of the study, whole, that only the record before has: a store
    of runs does not last, and versions are added to a study one by one."""
    if VERSION not in before.runs:
        return record
    here = record.runs.get(VERSION, ())
    kept = [name for name in study.versions if name not in set(here)]

    def both(now: pd.DataFrame, then: pd.DataFrame) -> pd.DataFrame:
        old = then[then[VERSION].isin(kept)] if len(then) else then
        # A search tells of every version of the study, of one that was not run with nothing.
        new = now[~now[VERSION].isin(kept)] if len(now) else now
        filled = [table for table in (old, new) if len(table)]
        return pd.concat(filled) if filled else now

    parts = ("runs", "rounds", "search", "procedures")
    tables = {part: both(getattr(record, part), getattr(before, part)) for part in parts}
    return Record(**tables, board=record.board or before.board)


def check(project: Path) -> list[str]:
    """What disagrees among records, pages, figures and the studies' files, a line each."""
    results = Results(project)
    return [
        *_of_pages(results),
        *_of_figures(results),
        *_of_studies(results),
    ]


def rendered(results: Results) -> list[Page]:
    """The pages as they should be, from the records."""
    pages, found = results.pages, {}
    for identity, words in results.recorded.items():
        if results.files(identity).exists:
            found[identity] = findings(results.study(words), results.files(identity).read())

    def text_of(kind: str, words: str) -> str:
        if kind == STUDY:
            return study_block(results, words, found.get(identity_of(words)))
        return claims_block(pages, words, found) if kind == CLAIMS else _figures(results, found)

    return [page.filled(text_of) for page in pages]


def study_block(results: Results, words: str, found: Findings | None) -> str:
    """What a page shows of a study: figure, claims, the command, and folded away the rest."""
    if found is None:
        return f"Not published yet: `kedro results publish {words}`."
    identity = identity_of(words)
    beside = {identity_of(row.study): row.verified for row in read_rows(results.project)}
    rows = [_without(row, "source") for row in claims_table(found, beside.get(identity))]
    path = f"runs/{results.files(identity).path('').name}"
    more = [
        f"{progress(found)}; {found.run_time}. {_commits(found.record)} [A line a run]({path}).\n"
    ]
    if rows[MOST_ROWS:]:
        more.append(_table(rows[MOST_ROWS:]))
    more.append(_accuracies(found))
    if len(found.record.search):
        tried = int(found.record.search["new_runs"].sum())
        text = f"A search of {tried} runs on held-out training records chose schedules"
        link = f"[all candidates]({path.replace('.csv', '-search.csv')})"
        more.append(f"{text}, and ε does not count it: {link}.\n")
    return "\n".join(
        [
            *(f"![{title}](../images/{figure.name})\n" for title, figure in results.figures(words)),
            _table(rows[:MOST_ROWS]) if rows else _by_arm(found) or _accuracies(found),
            f"```\nkedro study {words}\n```\n",
            "<details markdown><summary>More</summary>\n",
            *(more if rows else [more[0], *more[2:]]),
            "</details>",
        ]
    )


def claims_block(pages: Sequence[Page], paper: str, found: Mapping[str, Findings]) -> str:
    """All claims of a paper that a study judges, and their verdicts."""
    rows = []
    for page in pages:
        for identity, section in page.sections().items():
            for row in claims_table(found[identity]) if identity in found else ():
                if row["source"].split()[0] == paper:
                    place = linked(page.path.name, section)
                    rows.append({"claim": row["claim"], "reproduced": row["reproduced"], "": place})
    return _table(rows)


def _figures(results: Results, found: Mapping[str, Findings]) -> str:
    """The table of all figures of the papers."""
    pages = {title: page for page in results.pages for title in _titles(page)}
    rows = []
    for row in read_rows(results.project):
        page, identity = pages.get(row.figure), identity_of(row.study)
        told = cells(row, found.get(identity))
        image = results.docs / "images" / f"{identity}.png"
        picture = f"[picture](images/{image.name})" if image.is_file() else "–"
        name = linked(page.link, row.figure) if page else row.figure
        ends = {"command": f"`kedro study {row.study}`", "min": told.pop("minutes"), "": picture}
        rows.append({"figure": name} | told | ends)
    return _table(rows)


def _titles(page: Page) -> list[str]:
    return re.findall(r"^#{2,3} (.*)$", page.text, re.MULTILINE)


def _accuracies(found: Findings) -> str:
    """What the runs of the deciding version, and of one at a verified epsilon, end with."""
    table, study = found.table, found.study
    if VERSION in table and found.judged is not None:
        decides = study.decides or str(table[VERSION].iloc[0])
        shown = {decides, verified_version(found.judged, decides)}
        table = table[table[VERSION].isin(shown)] if table[VERSION].isin(shown).any() else table
    if len(table) > _MOST_LISTED:
        return f"Accuracies of {len(table)} arms and values: in the file of runs.\n"
    return to_markdown(table)


def _by_arm(found: Findings) -> str:
    """Accuracy and verified epsilon over the one key that a study's grid varies, a column an arm, a
    table a version; "" for other grids."""
    keys = [key for key in found.study.grid if key != "seed"]
    runs, tables = found.record.measured, []
    if len(keys) != 1 or ARM not in runs or VERSION not in runs:
        return ""
    for version, of_version in runs.groupby(VERSION, sort=False):
        rows = []
        for value, of_value in of_version.groupby(keys[0]):
            row = {keys[0]: parameter(value)}
            for arm, each in of_value.groupby(ARM, sort=False):
                bound = upper_bound(each["epsilon_verified"].max())
                row[str(arm)] = f"{each['accuracy'].mean():.3f}; ε {bound}"
            rows.append(row)
        tables.append(f"*{version}:*\n\n{_table(rows)}")
    return "\n".join(tables)


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    return markdown(pd.DataFrame(rows), list(rows[0])) if rows else ""


def _without(row: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: text for name, text in row.items() if name != key}


def _commits(record: Record) -> str:
    """What code made the runs."""
    named = Counter(
        (commit.removesuffix(CHANGED)[:_SHORT] or "no commit")
        + (" with changes that it lacks" if commit.endswith(CHANGED) else "")
        for commit in record.runs["commit"].map(str)
    )
    if len(named) == 1:
        return f"All are by commit {next(iter(named))}."
    parts = ", ".join(f"{number} by {commit}" for commit, number in named.items())
    return f"**They are by several commits**: {parts}."


def _digest(study: Study, files: RecordFiles) -> str:
    """SHA-256 of what a figure is drawn from: the record, and what the study's file says of it."""
    labels = {name: arm.label for name, arm in study.arms.items()}
    layouts = [
        block and block.model_dump(mode="json", exclude_defaults=True)
        for block in (study.figure, study.board)
    ]
    said = json.dumps([labels, layouts], sort_keys=True) + files.digest()
    return hashlib.sha256(said.encode()).hexdigest()


def digest_of(png: Path) -> str:
    """The digest that a figure carries; "" where it has none or is not there."""
    content = png.read_bytes() if png.is_file() else b""
    place = 8
    while place < len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        key, _, text = content[place + 8 : place + 8 + length].partition(b"\0")
        if kind == b"tEXt" and key.decode("latin-1") == _KEY:
            return text.decode("latin-1")
        place += 12 + length
    return ""


def _of_pages(results: Results) -> Iterator[str]:
    """Lines of blocks that are not what the records give."""
    for page, made in zip(results.pages, rendered(results), strict=True):
        stands, gives = page.text.splitlines(), made.text.splitlines()
        match = difflib.SequenceMatcher(None, stands, gives, autojunk=False)
        for kind, first, last, start, end in match.get_opcodes():
            if kind != "equal":
                place = f"{shown(page.path)}:{first + 1}"
                yield from (f"{place}: only the page has {_cut(x)}" for x in stands[first:last])
                yield from (f"{place}: only the records give {_cut(x)}" for x in gives[start:end])


def _cut(line: str) -> str:
    return repr(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…")


def _of_figures(results: Results) -> Iterator[str]:
    """Figures that were drawn from something else."""
    for identity, words in results.recorded.items():
        study = results.study(words)
        if not results.files(identity).exists:
            yield f"{identity}: a page has a block of it, but there is no record"
            continue
        for _, path in results.figures(words):
            if digest_of(path) != _digest(study, results.files(identity)):
                yield f"{shown(path)}: was not drawn from the record of {identity}"


def _of_studies(results: Results) -> Iterator[str]:
    """Studies that no page names, and records that no page shows."""
    named = {identity for page in results.pages for identity in page.studies()}
    for path in sorted((results.project / "conf").glob("*/studies/*.yml")):
        env = path.parts[-3]
        identity = path.stem if env == BASE_ENV else f"{path.stem}-{env}"
        if identity not in named:
            yield f"{shown(path)}: no page of results has `kedro study` of it"
    recorded = results.recorded
    for path in sorted(results.files("").folder.glob("*")):
        identity = re.sub(r"(-(rounds|search|procedures|board))?\.(csv|json)$", "", path.name)
        if identity not in recorded:
            yield f"{shown(path)}: no page has a block of {identity}"
