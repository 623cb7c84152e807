"""Scores: how many held-out records a model gets right, counted where they lie and noised there.

A device counts the held-out records that a finished model gets right. The device's head sums the
counts and adds noise before anybody else reads them. A held-out record moves this count by one at
most, and nothing else. A training record moves counts by the released model alone. So a record is
in one of the releases, never in both.
"""

from dataclasses import dataclass, replace

import numpy as np

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.privacy.accounting import Composition, least_noise, subsampled
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.releases import Account, AlikeRounds, Past, Release
from m2fdp.core.streams import Streams
from m2fdp.core.topology.network import Network, heads_of

_SEES = "a noised count of right answers about held-out records"


def score_deviation(privacy: PrivacyConfig) -> float:
    """The deviation of what each head adds to its count: the least for which one score of a
    held-out record meets the target."""
    once = ((subsampled(1.0), 1),)
    return least_noise(once, privacy.epsilon, privacy.delta, privacy.adjacency)


def score(
    right: np.ndarray, holders: np.ndarray, network: Network, deviation: float, streams: Streams
) -> float:
    """The share of held-out records that a model gets right, as the cloud is told it. The noised
    sum of all counts over n need not lie in [0, 1].

    Args:
        right: bool (n,), which records the model gets right.
        holders: int64 (n,), the device of each.
        deviation: the noise that each head adds to its count.
    """
    noise = streams.generator("score").standard_normal(len(np.unique(heads_of(network), axis=0)))
    return float((right.sum() + deviation * noise.sum()) / len(holders))


@dataclass(frozen=True)
class _Once(Account):
    """The account of a score: one release, in the unit of the position's laws."""

    unit: float
    deviation: float

    @property
    def by_laws(self) -> bool:
        return False

    def shown(self, line: Release, past: Past) -> list[AlikeRounds]:
        law: Composition = ((subsampled(1.0, 1 / self.unit), 1),)
        return [AlikeRounds(plan, law, 1, self.deviation) for plan in list(past.counted)[:1]]


def with_scores(ledger: Ledger, deviation: float) -> Ledger:
    """The ledger of a run that ends with a score. Beside each line of training records it has one
    of held-out records: as if its observer were sent every count behind this noise."""

    def of_held_out(line: Release) -> Release:
        def behind(position: Position, known: float) -> float:
            return deviation / position.unit if known else 0.0

        shown = line.behind(behind)
        once = _Once(line.position.unit, shown.deviation, held_out=True)
        return replace(shown, sees=_SEES, account=once)

    return replace(ledger, lines=(*ledger.lines, *map(of_held_out, ledger.lines)))
