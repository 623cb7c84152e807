"""`gradient`: each record's gradient is clipped and every local step is noised, by the head.

A device below an untrusted parent noises its own steps. A trusted server that noises its messages
steps together with all devices below it, as one learner: it averages their clipped gradients, adds
noise, and steps. All that leaves a head follows from its noised steps. So everybody's v (see
`releases`) is the head's step. Noise of messages is not there at every step, and counts for nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from m2fdp.core.config import PrivacyConfig
from m2fdp.core.privacy import mechanisms, releases
from m2fdp.core.privacy.accounting import Composition, subsampled
from m2fdp.core.privacy.mechanisms import Clipping, LockStep, Mechanism, Noise, silence
from m2fdp.core.privacy.positions import Position, positions
from m2fdp.core.privacy.premises import Premises
from m2fdp.core.privacy.releases import Laws, Release, View
from m2fdp.core.privacy.sight import TO_TRUSTED, Reading, readings, rows
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network, no_noise

_BELOW_THE_HEAD = "clipped gradients on their way to the head"


@dataclass(frozen=True)
class Gradient(Mechanism):
    """Noise at every step."""

    name: str = "gradient"
    noises_every_step: bool = True

    def check(
        self,
        privacy: PrivacyConfig,
        network: Network | None = None,
        plans: Sequence[RoundPlan] = (),
    ) -> None:
        mechanisms.refuse_if(
            (
                privacy.calibration == "paper",
                "calibration: paper is not defined for mechanism: gradient; use accountant",
            ),
            (
                privacy.adjacency == "replace_one" and privacy.unit == "device",
                mechanisms.NOT_REPLACED,
            ),
        )

    def clipping(self, privacy: PrivacyConfig) -> Clipping:
        if privacy.unit == "record":
            return Clipping("expected", record_norm=privacy.clipping_norm)
        by_layer = privacy.clip == "per_layer"
        return Clipping("drawn", batch_norm=privacy.clipping_norm, by_layer=by_layer)

    def units(self, premises: Premises) -> np.ndarray:
        # The public divisor B_j = q_j D_j; a device's clipped gradient is there or not.
        privacy, factor = premises.privacy, 1.0
        if privacy.unit == "record":
            factor = 1.0 / (premises.rates * premises.sizes)
        return premises.weights_to_heads * privacy.clipping_norm * factor

    def noise(
        self, premises: Premises, lock_step: LockStep, deviations: Sequence[np.ndarray]
    ) -> Noise:
        """Heads draw at every step, servers above them with their messages, nodes below never. A
        group below a decoding parent steps behind the noise of all heads in it."""
        network, heads = premises.network, premises.heads
        tree = network.tree
        drawn = no_noise(tree)
        for layer, index in heads:
            drawn[layer][index] = deviations[layer][index]
        shared = mean_variances(network, drawn, np.ones(tree.n_devices))
        steps = [drawn[layer][i] or np.sqrt(shared[layer][i]) for layer, i in lock_step.nodes]
        messages = tuple(of_layer.copy() for of_layer in deviations)
        silent_from = np.minimum(heads[:, 0], lock_step.nodes[lock_step.group_of, 0] + 1)
        for layer, of_layer in enumerate(messages):
            of_layer[tree.ancestors[layer][silent_from <= layer]] = 0.0
        silent = silence(network, lock_step)
        return replace(silent, steps=np.array(steps), heads=drawn, messages=messages)

    def laws(self, premises: Premises) -> Laws:
        """One release a local step."""

        def laws(position: Position, plan: RoundPlan) -> Composition:
            rate = 1.0 if premises.privacy.unit == "device" else position.sampling_rate
            return ((subsampled(rate), len(plan.layers)),)

        return laws

    def releases(
        self, premises: Premises, noise: Sequence[np.ndarray], units: np.ndarray, laws: Laws
    ) -> list[Release]:
        of_positions = positions(premises, noise, units)
        return [line for position in of_positions for line in _lines(premises, position, laws)]


def _lines(premises: Premises, position: Position, laws: Laws) -> list[Release]:
    # Where steps are summed, every one of them must end in the sum: members that share their
    # noise never act on a part of it, others may until the next global aggregation.
    every_step = None not in premises.tops
    highest = max((top for top in premises.tops if top is not None), default=0)
    summed = position.shared or (position.summed and every_step and highest < position.head_layer)
    view: View = "mean" if summed else "message"
    # Of steps that each end in an aggregation nobody below is shown more than their mean.
    peer_view: View = "mean" if position.is_device and every_step else view

    def line(reading: Reading) -> Release:
        kind, row = reading.kind, reading.row
        if row.up == TO_TRUSTED:
            return releases.trusted_above(position, kind, "clipped gradients", laws)
        if reading.at == "words":
            return releases.in_words(position, kind, laws)
        if reading.at == "below":
            return releases.in_clear(position, kind, _BELOW_THE_HEAD, laws)
        by_turns = row.line is not None and reading.at != "head"
        return Release(
            position,
            kind,
            row.words,
            "what follows from every step's noised gradient",
            releases.drawn_at_heads(position, peer_view if by_turns else view, row.drew),
            "as if every noised gradient were seen",
            laws,
        )

    made = {
        each.kind: releases.line_of(premises, position, each, line)
        for each in readings(premises, position)
        if not (position.is_device and each.row.up == TO_TRUSTED)
    }
    return [made[kind] for kind in rows() if kind in made]


GRADIENT = Gradient()
