"""Pages about results: text that somebody has written, and blocks that are made.

A block stands between two lines of comment. The first says what is made: of a study's record, by
the words that follow `kedro study`; the claims of a paper; or the table of all figures.

    <!-- study: features --env=cifar10 -->
    <!-- end -->
    <!-- claims: J -->
    <!-- end -->
    <!-- figures -->
    <!-- end -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Of the papers, as docs call them, in the order of the pages.
PAPERS = ("J", "C", "H", "G", "D")
DOCS = "docs"  # the folder of all pages, in a project's
STUDY, CLAIMS, FIGURES = "study", "claims", "figures"  # what blocks are of
_END = "<!-- end -->"
_BLOCK = re.compile(
    rf"^<!-- (?P<kind>{STUDY}|{CLAIMS}|{FIGURES})(?:: (?P<words>.*?))? -->\n(?:.*?\n)??{_END}$",
    re.DOTALL | re.MULTILINE,
)
_HEADING = re.compile(r"^#{2,3} (.*)$", re.MULTILINE)
_COMMAND = re.compile(r"kedro study (\w[^`|\n]*)")


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

    def sections(self) -> dict[str, str]:
        """The heading above each block of a study, by identity."""
        found = {}
        for match in _BLOCK.finditer(self.text):
            if match["kind"] == STUDY:
                above = _HEADING.findall(self.text, 0, match.start())
                found[identity_of(match["words"])] = above[-1] if above else ""
        return found


def linked(link: str, section: str) -> str:
    """A section of a page, as a link in Markdown."""
    anchor = re.sub(r"[^\w\- ]", "", section.lower()).strip().replace(" ", "-")
    return f"[{section}]({link}#{anchor})"


def read_pages(docs: Path) -> list[Page]:
    """The index, a page a paper, ours, and the attacks, on which studies stand too."""
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
