"""The claims of docs/results that no record stands behind, and the verdicts that their printed
numbers allow.

What is printed of a threshold is the mean and deviation of its
seeds' differences, so that it is judged as `judge` judges runs; of a trend only the means and
deviations at each value are left, which are compared unpaired (Welch). Where printed digits leave
several verdicts possible, the claim is open, but in the studies whose runs were there to be judged.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from typing import Any

from scipy.special import stdtrit
from tests.finished import REPOSITORY
from tools.pages import Page, read_pages, tables, words_of

from m2fdp.claims.declared import ThresholdClaim, TrendClaim
from m2fdp.claims.frames import comparable
from m2fdp.claims.intervals import FAILS, HOLDS, LEVEL, OPEN, Summary, against_bounds
from m2fdp.studies.study import Study, load_study

PAGES = [page for page in read_pages(REPOSITORY / "docs") if page.path.parent.name == "results"]

# Judged by `judge` from runs of today's code.
FROM_RUNS = ("h_table1",)
_CELL = re.compile(r"^(?P<text>.*): (?P<verdict>[a-z][a-zA-Z, ]*?)(?P<welch> \(Welch\))?$")
_NUMBER = r"[+-]?(?:[\d,]+(?:\.\d+)?|∞)"
_MEAN = re.compile(rf"^(?P<mean>{_NUMBER})(?: ± (?P<std>{_NUMBER}))?(?: (?P<unit>points|%|\w+))?$")
_SEEDS = re.compile(r" \(n = (\d+)\)")
_SCALES = {"points": 0.01, "%": 0.01}
_SIZES = {"devices": lambda f: math.prod(f), "zones": lambda f: math.prod(f[:-1])}


@dataclass(frozen=True)
class Published:
    """A claim's cell in one version."""

    page: Page
    line: int  # of the page
    study: str
    claim: ThresholdClaim | TrendClaim
    version: str
    text: str  # what was measured
    verdict: str
    welch: bool  # the page says that it was judged unpaired
    runs: tuple[Mapping[str, str], ...]  # rows of the study's table of accuracies

    @property
    def judged(self) -> tuple[set[str], bool]:
        """The verdicts that the printed numbers allow, and whether they are unpaired ones."""
        match = _SEEDS.search(self.text)
        if match is None:  # nobody reached it
            return {self.verdict}, False
        if int(match[1]) < 2:
            return {OPEN}, False
        if isinstance(self.claim, TrendClaim):
            return self._trend(), True
        return self._threshold(self.text[: match.start()], int(match[1])), False

    def _threshold(self, text: str, n: int) -> set[str]:
        assert isinstance(self.claim, ThresholdClaim)
        match = _MEAN.match(text)
        assert match and match["std"], (self.line, text)
        scale = _SCALES.get(match["unit"], 1.0)
        bounds = [
            b if b is not None else math.nan for b in (self.claim.at_least, self.claim.at_most)
        ]
        summaries = product(_rounded(match["mean"], scale), _rounded(match["std"], scale))
        return {
            against_bounds(Summary(m, max(s, 0.0), n).interval(), *bounds) for m, s in summaries
        }

    def _trend(self) -> set[str]:
        assert isinstance(self.claim, TrendClaim) and self.claim.measure == "accuracy"
        points = {}
        for row in self.runs:
            selection = {**self.claim.of, **({"version": self.version} if self.version else {})}
            if all(comparable(row[key]) == comparable(value) for key, value in selection.items()):
                size = _SIZES.get(self.claim.trend)
                place: Any = comparable(row["topology.fanouts" if size else self.claim.trend])
                points[size(place) if size else place] = row
        rows = [points[place] for place in sorted(points)]
        versions = set()
        for m, s in product((-1, 1), repeat=2):  # as printed, at the ends of what is rounded away
            versions.add(self._welch(rows, 0.0005 * m, 0.0005 * s))
        return versions

    def _welch(self, rows: list[Mapping[str, str]], mean_error: float, std_error: float) -> str:
        sign = 1 if self.claim.direction == "rises" else -1
        points = []
        for row in rows:
            mean, std = map(float, row["accuracy ± std"].split(" ± "))
            points.append((sign * mean, max(std + std_error, 0.0), int(row["seeds"])))
        level = 1 - (1 - LEVEL) / (len(points) - 1)
        steps = [_difference(a, b, 2 * mean_error, level) for a, b in pairwise(points)]
        low, high = _difference(points[0], points[-1], 2 * mean_error, LEVEL)
        if high < 0 or any(step[1] < 0 for step in steps):
            return FAILS
        return HOLDS if low > 0 else OPEN


def _difference(
    first: tuple[float, float, int], last: tuple[float, float, int], error: float, level: float
) -> tuple[float, float]:
    """Welch's interval of the last point's mean less the first's; (mean, std, n) each."""
    squares = [std**2 / n for _, std, n in (first, last)]
    gain, se = last[0] - first[0] + error, math.sqrt(sum(squares))
    if not se:
        return gain, gain
    freedom = sum(squares) ** 2 / sum(
        square**2 / (n - 1) for square, (*_, n) in zip(squares, (first, last), strict=True)
    )
    half = float(stdtrit(freedom, (1 + level) / 2)) * se
    return gain - half, gain + half


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
        words, runs = page.studies(), {}
        for table in tables(page):
            if "accuracy ± std" in table.columns:
                runs.setdefault(table.identity, []).extend(row for _, row in table.rows)
            elif table.of_claims and not table.made:
                content = _study(*words_of(words[table.identity]))
                for number, row in table.rows:
                    (claim,) = (each for each in content.claims if each.claim == row["claim"])
                    for name, cell in row.items():
                        judged = _CELL.match(cell)
                        if name.startswith("measured") and judged and "(" in cell:
                            version = name.removeprefix("measured").strip(" ()")
                            yield Published(
                                page, number, table.identity, claim, version, judged["text"],
                                judged["verdict"], bool(judged["welch"]),
                                tuple(runs.get(table.identity, ())),
                            )  # fmt: skip


@cache
def _study(name: str, env: str | None) -> Study:
    return load_study(REPOSITORY / "conf", name, env)
