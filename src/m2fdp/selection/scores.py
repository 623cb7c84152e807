"""Scores: how many held-out records a model gets right, counted where they lie and noised there.

A device counts the held-out records that a finished model gets right. The device's head sums the
counts and adds noise before anybody else reads them. A held-out record moves this count by one at
most, and nothing else. A training record moves counts by the released model alone. So a record is
in one of the releases, never in both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.data.manifest import held_out
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.training import evaluate
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.experiment.parts import records_of
from m2fdp.core.privacy.accounting import least_noise, subsampled
from m2fdp.core.privacy.calibration import CalibratedMechanism
from m2fdp.core.privacy.ledger import Ledger
from m2fdp.core.privacy.releases import Account, AlikeRounds, Past, Release
from m2fdp.core.streams import Streams
from m2fdp.core.topology.network import Network, heads_of


def score_deviation(privacy: PrivacyConfig) -> float:
    """The deviation of what each head adds to its count: the least for which one score of a
    held-out record meets the target."""
    once = ((subsampled(1.0), 1),)
    return least_noise(once, privacy.epsilon, privacy.delta, privacy.adjacency)


def score(
    right: np.ndarray, holders: np.ndarray, network: Network, deviation: float, streams: Streams
) -> float:
    """The share of held-out records that a model gets `right`, bool (n,), as the cloud is told it,
    behind the noise that each head of their `holders`, int64 (n,), adds to its count. The noised
    sum of all counts over n need not lie in [0, 1].
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
        law = ((subsampled(1.0, 1 / self.unit), 1),)
        return [AlikeRounds(plan, law, 1, self.deviation) for plan in list(past.counted)[:1]]


def with_scores(ledger: Ledger, deviation: float) -> Ledger:
    """The ledger of a run that ends with a score. Beside each line of training records it has one
    of held-out records: as if its observer were sent every count behind this noise."""

    def of_held_out(line: Release) -> Release:
        shown = line.behind(lambda position, known: deviation / position.unit if known else 0.0)
        once = _Once(line.position.unit, shown.deviation, held_out=True)
        sees = "a noised count of right answers about held-out records"
        return replace(shown, sees=sees, account=once)

    return replace(ledger, lines=(*ledger.lines, *map(of_held_out, ledger.lines)))


class Scored(PlainExperiment):
    """A run whose devices may hold records out (`partition.held_out_by`)."""

    @cached_property
    def mechanisms(self) -> tuple[CalibratedMechanism, ...]:
        found, partition = super().mechanisms, self.config.partition
        if not self.plan.private or partition.held_out_by != "devices":
            return found
        ledger = with_scores(found[0].ledger, score_deviation(self.config.privacy))
        return tuple(replace(each, ledger=ledger) for each in found)

    def score(self, state_dict: Mapping[str, Tensor]) -> float | None:
        """The accuracy on records that devices hold out, as the cloud is told it: a release, behind
        noise. None where devices hold out nothing."""
        if self.config.partition.held_out_by == "cloud":
            return None
        samples, holders = held_out(self.dealt, "validation")
        weights = parameters_to_vector(state_dict.values())
        set_exact_arithmetic()
        records = records_of(self.inputs, samples, "cpu")
        right = evaluate(self.model, weights, *records).predictions.numpy()
        right = right == self.dataset.labels[samples]
        deviation, draws = score_deviation(self.config.privacy), self.randomness_of(samples)
        return score(right, holders, self.network, deviation, draws.noise)
