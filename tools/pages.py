"""Pages about results: text that somebody has written, and blocks that are made.

A block stands between two lines of comment. The first says what is made: of a study's record, by
the words that follow `kedro study`; the claims of a paper; or all studies.

    <!-- study: features --env=cifar10 -->
    <!-- end -->
    <!-- claims: J -->
    <!-- end -->
    <!-- studies -->
    <!-- end -->

A table outside is one that somebody has copied from a report; what stands in it is read off.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from m2fdp.claims.intervals import FAILS, HOLDS, OPEN
IN_PART="holds in part"
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted

# Of the papers, as docs call them, in the order of the pages; then what is nobody's but ours.
PAPERS = ("J", "C", "H", "G", "D")
DOCS = "docs"  # the folder of all pages, in a project's
STUDY, CLAIMS, STUDIES = "study", "claims", "studies"  # what blocks are of
_END = "<!-- end -->"
_BLOCK = re.compile(
    rf"^<!-- (?P<kind>{STUDY}|{CLAIMS}|{STUDIES})(?:: (?P<words>.*?))? -->\n(?:.*?\n)??{_END}$",
    re.DOTALL | re.MULTILINE,
)
_HEADING = re.compile(r"#{2,3} (.*)")
_COMMAND = re.compile(r"kedro study (\w[^`|\n]*)")
_N = re.compile(r"\(n = (\d+)\)")
_OF_VERSION = re.compile(r"measured \((.+)\)")
_EPSILON = re.compile(r"ε = (\S+?)(?: cond\.)?(?=[:,]|$)")
LEAST_SEEDS = 3  # that a verdict takes in the index
_NOT_RUN = "not run"
_AT_ANOTHER = f"{HOLDS} at the ε beside only"
COUNTED = (HOLDS, IN_PART, _AT_ANOTHER, OPEN, FAILS)  # what `counts` counts


@dataclass(frozen=True)
class Page:
    """A page as it is, or as it should be."""

    path: Path
    link: str  # its address, as the index has it
    text: str

    def blocks(self) -> Iterator[tuple[str, str]]:
        """What each block is of, in order: its kind, and the words that follow."""
        for match in _BLOCK.finditer(self.text):
            yield match["kind"], match["words"] or ""

    def filled(self, text_of: Callable[[str, str], str]) -> Page:
        """The page with what its blocks should say, by kind and words."""

        def block(match: re.Match[str]) -> str:
            opening = match[0][: match[0].index("\n") + 1]
            return f"{opening}{text_of(match['kind'], match['words'] or '').strip()}\n\n{_END}"

        return Page(self.path, self.link, _BLOCK.sub(block, self.text))

    def studies(self) -> dict[str, str]:
        """All studies whose command stands anywhere on the page, by identity: their words."""
        found = _COMMAND.findall(self.text)
        found += [words for kind, words in self.blocks() if kind == STUDY]
        return {identity_of(words): words for words in found}


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        identity: the study below whose command, or in whose block, it stands; "" above all.
        section: the heading above that, or above the table.
        made: whether it is a part of a block.
        rows: the lines' numbers, and their cells by column.
    """

    page: Page
    identity: str
    section: str
    made: bool
    columns: tuple[str, ...]
    rows: tuple[tuple[int, Mapping[str, str]], ...]

    @property
    def of_claims(self) -> bool:
        """Whether its rows are claims, judged."""
        return self.columns[:2] == ("claim", "source")

    @property
    def link(self) -> str:
        """To its section."""
        anchor = re.sub(r"[^\w\- ]", "", self.section.lower()).strip().replace(" ", "-")
        return f"[{self.section}]({self.page.link}#{anchor})"


def read_pages(docs: Path) -> list[Page]:
    """The index, a page a paper, ours, and the attacks, on which claims stand too."""
    names = ["results.md", *(f"results/{paper.lower()}.md" for paper in PAPERS)]
    names += ["results/ours.md", "attacks.md"]
    paths = [docs / name for name in names]
    return [
        Page(p, n, p.read_text(encoding="utf-8"))
        for p, n in zip(paths, names, strict=True)
        if p.is_file()
    ]


def recorded(pages: Iterable[Page]) -> dict[str, str]:
    """The studies that a page has a block of, by identity: the words of the block."""
    blocks = (block for page in pages for block in page.blocks())
    return {identity_of(words): words for kind, words in blocks if kind == STUDY}


def words_of(text: str) -> tuple[str, str | None]:
    """A study's name, and its environment if one is given, of what follows `kedro study`."""
    name, *options = shlex.split(text)
    given = [word.removeprefix("--env=") for word in options if word.startswith("--env=")]
    return name, given[0] if given else None


def identity_of(text: str) -> str:
    """As `m2fdp.studies.order.Order.identity` has it."""
    return "-".join(filter(None, words_of(text)))


def tables(page: Page) -> Iterator[Table]:
    """The page's tables, in order.

    Raises:
        InputError: a row that has not as many cells as columns.
    """
    heading = identity = section = ""
    made, columns = False, tuple[str, ...]()
    rows: list[tuple[int, Mapping[str, str]]] = []
    for number, line in enumerate([*page.text.splitlines(), ""], start=1):
        if columns and not line.startswith("|"):
            yield Table(page, identity, section or heading, made, columns, tuple(rows))
            columns = ()
        opened = re.fullmatch(rf"<!-- {STUDY}: (.*) -->", line)
        command = opened or (not made and re.match(r"kedro study (\w.*)", line))
        if found := _HEADING.match(line):
            heading = found[1]
        elif command:
            made = made or opened is not None
            if identity_of(command[1]) != identity:
                identity, section = identity_of(command[1]), heading
        elif line == _END:
            made = False
        elif line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            if not columns:
                columns, rows = tuple(cells), []
            elif len(cells) != len(columns):
                place = f"{page.path.name}:{number}"
                valid = counted(len(columns), "cell")
                raise InputError(place, cells[0], f"begins a row of {len(cells)}; valid: {valid}")
            elif not set(line) <= set("|-: "):
                rows.append((number, dict(zip(columns, cells, strict=True))))


def index(paper: str, claims: Iterable[Table]) -> str:
    """The claims of a paper, in Markdown: those of one section and verdict in a row.

    Raises:
        InputError: a claim with a verdict that no number of seeds stands beside.
    """
    groups: dict[tuple[str, int, str], list[_Judged]] = {}
    for table in claims:
        for number, row in table.rows:
            if row["source"].partition(" ")[0] == paper:
                place = f"{table.page.path.name}:{number}"
                judged = _judged(row, place)
                groups.setdefault((table.link, *judged.verdict), []).append(judged)
    order = list(dict.fromkeys(link for link, *_ in groups))
    lines = ["| where | what it says | verdict | ε verified | n | here |"]
    lines.append("|---|---|---|---:|---:|---|")
    for key in sorted(groups, key=lambda key: (order.index(key[0]), *key[1:])):
        group = groups[key]
        cells = (
            "; ".join(dict.fromkeys(each.where for each in group)),
            "<br>".join(each.says for each in group),
            key[2],
            _span(each.epsilon for each in group),
            _span(each.n for each in group),
            key[0],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def counts(paper: str, claims: Iterable[Table]) -> list[int]:
    """How many of a paper's claims there are of each of `COUNTED`."""
    found = [0] * len(COUNTED)
    for table in claims:
        for number, row in table.rows:
            if row["source"].partition(" ")[0] == paper:
                found[_judged(row, f"{table.page.path.name}:{number}").verdict[0]] += 1
    return found


@dataclass(frozen=True)
class _Judged:
    """A claim as the index has it."""

    where: str  # in the paper
    says: str
    verdict: tuple[int, str]  # its place in `COUNTED`, and in words
    epsilon: str  # verified, of the runs that the verdict is about
    n: str


def _judged(row: Mapping[str, str], place: str) -> _Judged:
    verdict = row["verdict"]
    measured = [text for name, text in row.items() if name.startswith("measured")]
    simple = HOLDS if f"{HOLDS} only" in verdict else verdict.split(" ")[0].rstrip(";:,")
    word = IN_PART if verdict.startswith(IN_PART) else simple
    telling = [text for text in measured if _N.search(text)]
    alike = [text for text in telling if re.search(rf": {simple}\b", text)]
    n = epsilon = ""
    if chosen := alike or telling:  # of several versions the one that promises most
        text = min(chosen, key=lambda text: _number(_epsilon(text)))
        n, epsilon = _N.findall(text)[0], _epsilon(text)
    says, kind = row["claim"], word if word in COUNTED else OPEN
    if word not in COUNTED:
        word = f"{OPEN} ({verdict if n else _NOT_RUN})"
    elif not n:
        raise InputError(place, says, "has a verdict, but nothing measured with (n = …)")
    elif int(n) < LEAST_SEEDS and word != OPEN:
        kind, word = OPEN, f"{OPEN} ({word} in {n} seed{'s' if n != '1' else ''})"
    elif f"{HOLDS} only" in verdict:
        kind = word = _AT_ANOTHER
    elif f"; {HOLDS} at" in verdict:
        says += f" ({verdict.partition('; ')[2].partition(' (')[0]})"
    elif verdict.endswith("(conditional)"):
        word = verdict
    if kind == IN_PART and (against := _versions_of(row, FAILS)):
        says += f" ({FAILS} in {', '.join(against)})"
    return _Judged(row["source"].partition(" ")[2], says, (COUNTED.index(kind), word), epsilon, n)


def _versions_of(row: Mapping[str, str], word: str) -> list[str]:
    """The versions of a study in which a claim has some verdict."""
    columns = ((_OF_VERSION.fullmatch(name), text) for name, text in row.items())
    return [name[1] for name, text in columns if name and re.search(rf": {word}\b", text)]


def _epsilon(text: str) -> str:
    found = _EPSILON.search(text)
    return found[1] if found else "none" if "no DP" in text else ""


def _span(values: Iterable[str]) -> str:
    """One value, or the least and the largest of several."""
    texts = dict.fromkeys(filter(None, values))
    numbers = sorted((text for text in texts if text != "none"), key=_number)
    ends = dict.fromkeys([*numbers[:1], *numbers[-1:]])
    return ", ".join(filter(None, [" to ".join(ends), "none" if "none" in texts else ""]))


def _number(text: str) -> float:
    """An epsilon's; where there is none, nothing is promised."""
    return float(text.replace(",", "")) if text[:1].isdigit() else math.inf
