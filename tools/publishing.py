"""Pages and figures made from the records of studies, or compared with them."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from m2fdp.core.files import replacing, shown
from m2fdp.core.formatting import counted
from m2fdp.studies.report import findings
from m2fdp.studies.report import tables as report_tables
from m2fdp.studies.study import BASE_ENV, Study, load_study
from m2fdp.studies.tracked_runs import CHANGED, Record
from tools.pages import (
    CLAIMS,
    DOCS,
    PAPERS,
    STUDY,
    Page,
    Table,
    counts,
    identity_of,
    index,
    read_pages,
    recorded,
    tables,
    words_of,
)
from tools.records import RecordFiles, record_files

_KEY = "Record"  # of a figure's digest, among the texts of a PNG file
_SHORT = 7  # digits of a commit
_VERDICTS = (
    "hold",
    "hold in part",
    "hold at another ε only",
    "are open",
    "fail",
)  # as `counts` counts them
_LONGEST = 150  # characters of a line that disagrees


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


def check(project: Path) -> list[str]:
    """What disagrees among records, pages, figures and the studies' files, a line each."""
    results = Results(project)
    return [
        *_of_pages(results),
        *_of_figures(results),
        *_of_studies(results),
        *_of_copied_claims(results),
    ]


def rendered(results: Results) -> list[Page]:
    """The pages as they should be: studies from their records, then the index from these."""

    def of_study(kind: str, words: str) -> str:
        return study_block(results, words) if kind == STUDY else "…"

    pages = results.pages
    filled = [page.filled(of_study) for page in pages[1:]]
    every = [table for page in filled for table in tables(page)]

    def of_index(kind: str, words: str) -> str:
        claims = [table for table in every if table.of_claims]
        return index(words, claims) if kind == CLAIMS else _overview(results, filled, claims)

    return [pages[0].filled(of_index), *filled]


def study_block(results: Results, words: str) -> str:
    """What a page shows of a study: figure, runs, tables, verdicts and the command."""
    study, identity = results.study(words), identity_of(words)
    files = results.files(identity)
    if not files.exists:
        return f"Not published yet: `kedro results publish {words}`."
    record = files.read()
    found = findings(study, record)
    path = f"runs/{files.path('').name}"
    parts = [
        *(f"![{title}](../images/{figure.name})\n" for title, figure in results.figures(words)),
        f"{found.progress}; {found.run_time}. {_commits(record)} [A line a run]({path}).\n",
        *report_tables(found, "###", pairs=False),
        f"```\nkedro study {words}\n```\n",
    ]
    return "\n".join(parts)


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


def _overview(results: Results, pages: Sequence[Page], claims: Sequence[Table]) -> str:
    """All pages, in Markdown: how many claims hold, and the studies with and without a record."""
    lines, known = [], results.recorded
    for page in pages:
        paper = page.path.stem.upper()
        numbers = zip(counts(paper, claims), _VERDICTS, strict=True)
        judged = ", ".join(f"{number} {verdict}" for number, verdict in numbers if number)
        parts = [f"of its claims {judged}" if judged else ""]
        kept, gone = [], []
        for identity, words in page.studies().items():
            bare = f"`{' --env='.join(filter(None, words_of(words)))}`"
            if identity in known and results.files(identity).exists:
                kept.append(f"{bare} ({_told(results.files(identity).read())})")
            elif _is_study(results, words):
                gone.append(bare)
        for title, studies in (("With a record", "; ".join(kept)), ("Without", ", ".join(gone))):
            parts.append(f"{title}: {studies}" if studies else "")
        name = paper if paper in PAPERS else page.path.stem
        lines.append(f"- **[{name}]({page.link})**: {'. '.join(filter(None, parts))}.")
    return "\n".join(lines)


def _told(record: Record) -> str:
    commits = dict.fromkeys(record.runs["commit"].str[:_SHORT])
    seeds = counted(record.runs["seed"].nunique(), "seed")
    return f"{counted(len(record.runs), 'run')}, {seeds}, {', '.join(commits)}"


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


def _of_copied_claims(results: Results) -> Iterator[str]:
    """Claims of studies without a record that only their file, or only a page, has."""
    for page in results.pages:
        if page.path.parent.name != "results":
            continue  # the attacks' page is about a few of theirs
        copied: dict[str, dict[str, int]] = {}
        for table in tables(page):
            if table.of_claims and not table.made:
                rows = {row["claim"]: number for number, row in table.rows}
                copied.setdefault(table.identity, {}).update(rows)
        words = page.studies()
        for identity, claims in copied.items():
            declared = [claim.claim for claim in results.study(words[identity]).claims]
            for claim in declared:
                if claim not in claims:
                    yield f"study {identity}: {claim!r} is not on {shown(page.path)}"
            for claim in claims.keys() - set(declared):
                place = f"{shown(page.path)}:{claims[claim]}"
                yield f"{place}: {claim!r} is not in the file of {identity}"


def _is_study(results: Results, words: str) -> bool:
    """Whether there is a file of it; a page may name sweeps, too."""
    name, env = words_of(words)
    return (results.project / "conf" / (env or BASE_ENV) / "studies" / f"{name}.yml").is_file()
