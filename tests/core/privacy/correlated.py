"""A mechanism of a test's own, on a star: the noise of a step takes back part of the step's before.

What a device's step t adds is z_t - PART z_(t-1), so that after T steps only (1 - PART) of all but
the last is left. In terms of what is seen that is a matrix mechanism (Denisov et al. 2022): summing
PART^j times the noised gradient of j steps before gives sum_j PART^j g_(t-j) + z_t. A record that
moves every g by at most 1 moves that by at most 1/(1 - PART), and z is fresh at every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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

PART = 0.7


@dataclass(frozen=True)
class Correlated(Gradient):
    """Noise at every step, correlated over steps.

    Attributes:
        part: of a step's noise that the next one takes back.
        widened: what a record moves what is seen by, over what it moves a gradient by.
    """

    name: str = "correlated"
    part: float = PART
    widened: float = 1 / (1 - PART)

    def check(
        self,
        privacy: PrivacyConfig,
        network: Network | None = None,
        plans: Sequence[RoundPlan] = (),
    ) -> None:
        super().check(privacy, network, plans)
        if network is None:
            return
        everybody = network.participants is None and network.participation is None
        if network.tree.depth > 1 or not everybody or network.sums.layers:
            problem = "is for stars whose devices all take part, without secure aggregation"
            raise InputError("privacy.mechanism", privacy.mechanism, problem)

    def laws(self, premises: Premises) -> Laws:
        """Sampling protects nobody: a record's earlier steps are in what is seen later."""

        def laws(position: Position, plan: RoundPlan) -> Composition:
            return ((subsampled(1.0, self.widened), len(plan.layers)),)

        return laws

    def noise(
        self, premises: Premises, lock_step: LockStep, deviations: Sequence[np.ndarray]
    ) -> Noise:
        return replace(super().noise(premises, lock_step, deviations), past=(-self.part,))


CORRELATED = Correlated()
# The smallest mistake: noise that is taken back counts as if it were all there.
CARELESS = Correlated(widened=1.0)
