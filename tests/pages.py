"""What stands in the fences of README and docs/: code to run, commands to type."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.finished import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?P<text>(?: {4}.*\n)+)")
_INLINE = re.compile(r"`(?P<text>kedro (?:run|study|results)[^`]*)`")
_FILE = re.compile(r"# file: (?P<path>\S+)\n")


@dataclass(frozen=True)
class Block:
    """A fence of a page."""

    line: int  # of the page, where the fence begins
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file whose content the block says it is; None where it says nothing."""
        named = _FILE.match(self.text)
        return named["path"] if named else None


def blocks(page: Path) -> list[Block]:
    """The page's fences, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, fence.start()) + 1, fence["language"], fence["text"])
        for fence in _FENCE.finditer(text)
    ]


def write_files(page: Path, folder: Path) -> None:
    """The files that a reader of the page has made."""
    for block in blocks(page):
        if block.file is not None:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """The arguments of each command of the program (`kedro run`), as a shell would hand them on.

    They stand in fences for a shell, in indented blocks, and within text and tables. With … in it
    something is no command yet.
    """
    shells = [block.text for block in blocks(page) if block.language in ("", "sh", "bash")]
    outside = _FENCE.sub("", page.read_text(encoding="utf-8"))
    shells += [found["text"] for found in _INDENTED.finditer(outside)]
    lines = [line for text in shells for line in re.sub(r"\\\n\s*", "", text).splitlines()]
    lines += [" ".join(found["text"].split()) for found in _INLINE.finditer(outside)]
    for line in lines:
        words = shlex.split(line, comments=True) if program in line and "…" not in line else []
        if words[:2] == program.split():
            yield words[2:]
