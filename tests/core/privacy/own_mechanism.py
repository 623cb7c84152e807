"""A mechanism of a test's own, on a star: nodes draw a part of the noise that is planned.

A record that moves a noised gradient by at most 1 then moves it by 1/PART of a planned deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.accounting import Composition, subsampled
from m2fdp.core.privacy.mechanisms import LockStep, Noise
from m2fdp.core.privacy.mechanisms.gradient import Gradient
from m2fdp.core.privacy.positions import Position
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Laws
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network

PART = 0.3


@dataclass(frozen=True)
class Quieter(Gradient):
    """Noise at every step.

    Attributes:
        part: of the planned noise that is drawn.
        widened: what a record moves what is seen by, over what it moves a gradient by.
    """

    name: str = "quieter"
    part: float = PART
    widened: float = 1 / PART

    def check(self, privacy: PrivacyConfig, network: Network | None = None, plans=()) -> None:
        super().check(privacy, network, plans)
        if network is None:
            return
        everybody = network.participants is None and network.participation is None
        if network.tree.depth > 1 or not everybody or network.sums.layers:
            problem = "is for stars whose devices all take part, without secure aggregation"
            raise InputError("privacy.mechanism", privacy.mechanism, problem)

    def laws(self, premises: Premises) -> Laws:
        """As if sampling protected nobody."""

        def laws(position: Position, plan: RoundPlan) -> Composition:
            return ((subsampled(1.0, self.widened), len(plan.layers)),)

        return laws

    def noise(
        self, premises: Premises, lock_step: LockStep, deviations: Sequence[np.ndarray]
    ) -> Noise:
        return super().noise(premises, lock_step, [self.part * each for each in deviations])


QUIETER = Quieter()
# The smallest mistake: noise that is not drawn counts as if it were there.
CARELESS = Quieter(widened=1.0)
