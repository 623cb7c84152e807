"""What docs/results says to hold, to fail or to be open is what its numbers allow."""

import re

import pytest
from tests.claims.published import PAGES, published
from tests.finished import REPOSITORY

from m2fdp.claims.intervals import FAILS, HOLDS, OPEN

PUBLISHED = list(published())


def test_the_pages_are_read():
    """Those that no record stands behind, fewer with each study that is run anew."""
    assert len(PUBLISHED) > 20
    assert {HOLDS, FAILS, OPEN} <= {each.verdict for each in PUBLISHED}


@pytest.mark.parametrize(
    "cell", PUBLISHED, ids=lambda each: f"{each.page.path.stem}-{each.line}-{each.version}"
)
def test_a_published_verdict_follows_from_its_printed_numbers(cell):
    possible = cell.possible if len(cell.possible) == 1 else {OPEN}
    assert cell.verdict in possible, (cell.claim.claim, cell.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_a_claim_holds_over_its_versions_only_where_it_does_in_one(page):
    lines = page.text.splitlines()
    for number in {cell.line for cell in PUBLISHED if cell.page == page}:
        cells = [cell for cell in PUBLISHED if (cell.page, cell.line) == (page, number)]
        verdicts = {cell.verdict for cell in cells}
        overall = re.search(r"\| ((?:holds|fails|open|not reached)[^|]*?) \|", lines[number - 1])
        assert overall, lines[number - 1]
        first = overall[1].split()[0].rstrip(";")
        if first == HOLDS or "holds at" in overall[1]:
            assert HOLDS in verdicts, overall[1]
        elif first == OPEN:
            assert OPEN in verdicts and HOLDS not in verdicts, overall[1]
        elif first == FAILS:
            assert FAILS in verdicts and not {HOLDS, OPEN} & verdicts, overall[1]


def test_no_page_uses_verdicts_of_before():
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]:
        assert "within one std" not in page.read_text()
