"""The claims of docs/results that no record stands behind, and the verdicts that their printed
numbers allow.

What is printed of a threshold is the mean and deviation of its seeds' differences, so that it is
judged as `judge` judges runs. Where printed digits leave several verdicts possible, the claim is
open. What is printed of a trend can't be judged so: each has a record.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from tests.finished import REPOSITORY
from tools.pages import Page, read_pages, tables, words_of

from m2fdp.claims.declared import ThresholdClaim
from m2fdp.claims.intervals import OPEN, Summary, against_bounds
from m2fdp.studies.study import Study, load_study

PAGES = [page for page in read_pages(REPOSITORY / "docs") if page.path.parent.name == "results"]

_CELL = re.compile(r"^(?P<text>.*): (?P<verdict>[a-z][a-zA-Z, ]*)$")
_NUMBER = r"[+-]?(?:[\d,]+(?:\.\d+)?|∞)"
_MEAN = re.compile(rf"^(?P<mean>{_NUMBER})(?: ± (?P<std>{_NUMBER}))?(?: (?P<unit>points|%|\w+))?$")
_SEEDS = re.compile(r" \(n = (\d+)\)")
_SCALES = {"points": 0.01, "%": 0.01}


@dataclass(frozen=True)
class Published:
    """A claim's cell in one version."""

    page: Page
    line: int  # of the page
    claim: ThresholdClaim
    version: str
    text: str  # what was measured
    verdict: str

    @property
    def possible(self) -> set[str]:
        """The verdicts that the printed numbers allow."""
        seeds = _SEEDS.search(self.text)
        if seeds is None:  # nobody reached it
            return {self.verdict}
        if (n := int(seeds[1])) < 2:
            return {OPEN}
        match = _MEAN.match(self.text[: seeds.start()])
        assert match and match["std"], (self.line, self.text)
        scale = _SCALES.get(match["unit"], 1.0)
        bounds = [
            b if b is not None else math.nan for b in (self.claim.at_least, self.claim.at_most)
        ]
        summaries = product(_rounded(match["mean"], scale), _rounded(match["std"], scale))
        return {
            against_bounds(Summary(m, max(s, 0.0), n).interval(), *bounds) for m, s in summaries
        }


def _rounded(text: str, scale: float) -> tuple[float, float]:
    """The ends of what is printed so."""
    if "∞" in text:
        return math.inf, math.inf
    plain = text.replace(",", "")
    half = 0.5 * 10.0 ** -len(plain.partition(".")[2])
    return (float(plain) - half) * scale, (float(plain) + half) * scale


def published() -> Iterator[Published]:
    """Every judged cell of the pages."""
    for page in PAGES:
        words = page.studies()
        for table in tables(page):
            if not table.of_claims or table.made:
                continue
            content = _study(*words_of(words[table.identity]))
            for number, row in table.rows:
                (claim,) = (each for each in content.claims if each.claim == row["claim"])
                for name, cell in row.items():
                    judged = _CELL.match(cell)
                    if name.startswith("measured") and judged and "(" in cell:
                        assert isinstance(claim, ThresholdClaim), "a trend needs a record"
                        version = name.removeprefix("measured").strip(" ()")
                        yield Published(page, number, claim, version, *judged.groups())


@cache
def _study(name: str, env: str | None) -> Study:
    return load_study(REPOSITORY / "conf", name, env)
