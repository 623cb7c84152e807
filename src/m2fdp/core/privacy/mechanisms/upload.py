"""`upload`, the papers': minibatch gradients are clipped, and the model message is noised.

Every node that adds noise adds it to its message. Aggregations that end below a head are in clear.
So two runs may drift apart between two noised releases: see `m2fdp.core.privacy.taint`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import floor, log, prod, sqrt

import numpy as np

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy import mechanisms, releases
from m2fdp.core.privacy.accounting import Composition, ShiftLaw
from m2fdp.core.privacy.mechanisms import Clipping, LockStep, Mechanism, Noise, silence
from m2fdp.core.privacy.positions import Position, positions
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Laws, Release, View
from m2fdp.core.privacy.sight import BESIDE, COLLUDING, TO_TRUSTED, Reading, readings
from m2fdp.core.privacy.taint import Steps, device_law, record_law, windows
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network

# What carries no noise, by where it is read.
_IN_CLEAR = {
    "below": "un-noised models on their way to the head",
    "local": "un-noised local aggregations",
}
# Beyond so many step sizes their pulls are rounded down to share laws, each of which takes time.
_MOST_STEP_SIZES = 8


@dataclass(frozen=True)
class Upload(Mechanism):
    """Noise with every message."""

    name: str = "upload"
    noises_every_step: bool = False

    def check(
        self,
        privacy: PrivacyConfig,
        network: Network | None = None,
        plans: Sequence[RoundPlan] = (),
    ) -> None:
        mechanisms.refuse_if(
            (privacy.adjacency == "replace_one", mechanisms.NOT_REPLACED),
            (
                privacy.calibration == "paper" and privacy.unit == "device",
                "calibration: paper knows records, clipped minibatches and uplinks only",
            ),
        )
        if network is not None and network.rho is not None and privacy.calibration == "paper":
            raise InputError(
                "topology.weights",
                "samples",
                "can't be combined with privacy.calibration: paper (Prop. 1 is for equal weights); "
                "use uniform, or calibration: accountant",
            )

    def clipping(self, privacy: PrivacyConfig) -> Clipping:
        norm = privacy.clipping_norm
        if privacy.unit == "device":
            return Clipping("drawn", update_norm=norm, by_layer=privacy.clip == "per_layer")
        return Clipping("drawn", batch_norm=norm)

    def units(self, premises: Premises) -> np.ndarray:
        """The weights on the path to the head are part of the laws."""
        # Two minibatch gradients of norm G are at most 2G apart.
        factor = 2.0 if premises.privacy.unit == "record" else 1.0
        return np.full(len(premises.sizes), premises.privacy.clipping_norm * factor)

    def paper_noise(self, premises: Premises) -> list[np.ndarray]:
        """J Prop. 1: sigma = alpha q Delta sqrt(K T ln(1/delta)) / epsilon. By J Lemma 1, Delta is
        2 eta K G over the product of s_l' from the node's layer to layer L-1."""
        network, plans, privacy = premises.network, premises.plans, premises.privacy
        tree = network.tree
        most_steps = max(len(plan.layers) for plan in plans)
        compositions = most_steps * len(plans)
        scale = sqrt(compositions * log(1 / privacy.delta)) / privacy.epsilon
        factor = privacy.alpha * premises.rates.max() * scale
        noise = []
        for layer, parts in enumerate(network.noise):
            shared = prod(network.smallest_fanout(below) for below in range(layer, tree.depth))
            sensitivity = 2 * most_steps * privacy.clipping_norm / shared
            noise.append(parts * (factor * sensitivity))
        return noise

    def noise(
        self, premises: Premises, lock_step: LockStep, deviations: Sequence[np.ndarray]
    ) -> Noise:
        return replace(silence(premises.network, lock_step), messages=tuple(deviations))

    def laws(self, premises: Premises) -> Laws:
        """One release a window; many step sizes share laws."""
        plans, privacy = premises.plans, premises.privacy
        share_laws = len({plan.step_size for plan in plans}) > _MOST_STEP_SIZES

        def laws(position: Position, plan: RoundPlan) -> Composition:
            part = _rounded_down(plan.pull) if share_laws else plan.pull
            steps = Steps(part, received=plan.center == "received")
            counts: Counter[ShiftLaw] = Counter()
            for window in windows(plan, position.head_layer):
                path = (window, position.head_layer, position.shares)
                if privacy.unit == "device":
                    counts[device_law(*path)] += 1
                else:
                    counts[record_law(*path, position.sampling_rate, steps)] += 1
            return tuple(counts.items())

        return laws

    def releases(
        self, premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray, laws: Laws
    ) -> list[Release]:
        return [
            releases.line_of(premises, position, reading, partial(_line, premises, position, laws))
            for position in positions(premises, noise, units)
            for reading in readings(premises, position)
            if reading.exists
        ]


def _rounded_down(value: float) -> float:
    """To a power of 1.2, so that decaying step sizes share their laws."""
    return 1.2 ** floor(log(value, 1.2) + 1e-9) if value > 0 else 0.0


def _line(premises: Premises, position: Position, laws: Laws, reading: Reading) -> Release:
    kind, row, sent = reading.kind, reading.row, reading.at == "head"
    if row.up == TO_TRUSTED and reading.at == "below":
        return releases.trusted_above(position, kind, "un-noised models", laws)
    if reading.at == "words":
        return releases.in_words(position, kind, laws)
    if reading.at in _IN_CLEAR:
        return releases.in_clear(position, kind, _IN_CLEAR[reading.at], laws)
    view: View = "message" if sent and not position.summed else "mean"
    sees = "the noised mean of the parent's children"
    rests = "as if the parent's mean were seen at every release"
    if sent:
        what = "sum of noised models" if position.summed else "noised model"
        sees, rests = f"the {what} at every release", "–"
    elif position.head_layer == 0:
        sees, rests = "the noised global model", "–"
    if row.drew == COLLUDING and position.head_layer > 0:
        sees, rests = "the noised models, or their sums, at every release", "–"
    if row.drew == BESIDE and position.is_device:
        rests = "siblings do not pool what they know of their own noises"
    deviation = releases.unsubtractable(premises, position, view, row)
    return Release(position, kind, reading.observer, sees, deviation, rests, laws)


UPLOAD = Upload()
