"""Docs can be read once: short sentences, few numbers in prose, no long pages."""

import re
from pathlib import Path

import pytest
from tests.finished import REPOSITORY
from tests.pages import PAGES

PROSE = [*PAGES, REPOSITORY / "CONTRIBUTING.md"]
MADE = {"configuration.md", "what-goes-together.md"}  # of docstrings, by programs
LONGEST, NUMBERS, SHARE = 28, 3, 0.015
PAGE, ALL = 1_200, 70_000
_NUMBER = re.compile(r"(?<![\w§.])\d[\d.,]*(?![\w.])")


def paragraphs(text: str) -> list[str]:
    """What is neither folded, which is looked up, nor code, table, heading, picture or HTML. A
    bullet is one of its own."""
    text = re.sub(r"^<details.*?^</details>", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    kept = (
        "" if re.match(r"\s*([|#<]|!\[)", line) else re.sub(r"^\s*([-*>]|\d+\.) ", "\n", line)
        for line in text.splitlines()
    )
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", "\n".join(kept))]


def sentences(text: str) -> list[str]:
    """As a reader hears them: code is a word, a link its text."""
    plain = re.compile(r"`[^`]*`|\[([^]]*)\]\([^)]*\)")
    found = (plain.sub(lambda match: match[1] or "X", part) for part in paragraphs(text))
    ends = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z*(])")
    return [one for part in found for one in ends.split(part) if one]


def words(text: str) -> list[str]:
    """All but the bars of tables and the like."""
    return re.findall(r"\S*\w\S*", text)


def test_sentences_are_short_and_numbers_stand_in_tables():
    said = [(page, one) for page in PROSE for one in sentences(page.read_text("utf-8"))]
    long = [
        (page.name, one)
        for page, one in said
        if len(words(one)) > LONGEST or len(_NUMBER.findall(one)) > NUMBERS
    ]
    assert len(long) <= SHARE * len(said), long


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_no_page_is_long(page: Path):
    if page.name not in MADE:
        assert len(words(" ".join(paragraphs(page.read_text("utf-8"))))) <= PAGE


def test_all_pages_together_are_not_long():
    assert sum(len(words(page.read_text("utf-8"))) for page in PROSE) <= ALL
