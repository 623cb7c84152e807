"""`upload`, the papers': minibatch gradients are clipped, and the model message is noised.

Every node that adds noise adds it to what it sends up, when it sends. What an aggregation does not
carry past a head is in clear below it, so that two runs may drift apart between two noised
releases: see `m2fdp.privacy.taint`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log, prod, sqrt

import numpy as np

from m2fdp.config import PrivacyConfig
from m2fdp.privacy.accounting import Composition, ShiftLaw
from m2fdp.privacy.mechanisms.base import (
    Clipping,
    LockStep,
    Noise,
    keys_of_models,
    layers_of_records,
    multiplier_alone,
    parts_of_full_noise,
    refuse_first,
    silence,
    smoothness_without_drift,
    step_alone,
)
from m2fdp.privacy.positions import Position
from m2fdp.privacy.positions import positions as positions_by_noise
from m2fdp.privacy.premises import Premises, Traffic
from m2fdp.privacy.releases import (
    OBSERVERS,
    Laws,
    Release,
    View,
    in_clear,
    in_words,
    of_super_node,
    trusted_above,
    unsubtractable,
)
from m2fdp.privacy.taint import Pull, device_law, record_law, windows
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.topology.network import Network

# What the line of a device's siblings rests on.
_ALONE = "siblings do not pool what they know of their own noises"
# Beyond so many step sizes their growths are rounded up, and pulls down, to share laws, each of
# which takes time.
_MOST_STEP_SIZES = 8


@dataclass(frozen=True)
class Upload:
    """See `m2fdp.privacy.mechanisms.base.Mechanism`."""

    name: str = "upload"
    noises_every_step: bool = False
    sends_models: bool = False
    knows_weights: bool = False

    def refuse(self, privacy: PrivacyConfig) -> None:
        refuse_first(
            smoothness_without_drift(privacy),
            layers_of_records(privacy),
            multiplier_alone(privacy),
            keys_of_models(privacy),
            (
                privacy.unit == "device" and privacy.drift != "worst_case",
                "unit: device clips whole updates and needs no drift; use drift: worst_case",
            ),
            (
                privacy.adjacency == "replace_one",
                "adjacency: replace_one is proven for mechanism: gradient with unit: record only; "
                "use add_remove",
            ),
            (
                privacy.calibration == "paper"
                and (
                    privacy.unit == "device"
                    or privacy.drift == "non_expansive"
                    or privacy.downlink_noise
                ),
                "calibration: paper knows records, clipped minibatches and uplinks only",
            ),
        )

    def check(self, network: Network, plans: Sequence[RoundPlan], privacy: PrivacyConfig) -> None:
        """Any network and any rounds will do."""

    def clips_records(self, privacy: PrivacyConfig) -> bool:
        return privacy.unit == "record" and privacy.drift == "non_expansive"

    def clipping(self, privacy: PrivacyConfig) -> Clipping:
        norm = privacy.clipping_norm
        if self.clips_records(privacy):
            return Clipping("expected", record_norm=norm, by_class=True)
        if privacy.unit == "device":
            return Clipping("drawn", update_norm=norm, by_layer=privacy.clip == "per_layer")
        return Clipping("drawn", batch_norm=norm)

    def lock_step(self, network: Network, plans: Sequence[RoundPlan]) -> LockStep:
        return step_alone(network)

    def units(self, premises: Premises) -> np.ndarray:
        """The weights on the path to the head are part of the laws."""
        privacy = premises.privacy
        factor: float | np.ndarray = 1.0
        if self.clips_records(privacy):
            # The public divisor B_j = q_j D_j.
            factor = 1.0 / (premises.rates * premises.sizes)
        elif privacy.unit == "record":
            # Two minibatch gradients of norm G are at most 2G apart.
            factor = 2.0
        return np.ones(len(premises.sizes)) * privacy.clipping_norm * factor

    def paper_noise(self, premises: Premises) -> list[np.ndarray]:
        """J Prop. 1 with Lemma 1: sigma = alpha q Delta sqrt(K T ln(1/delta)) / epsilon, where
        Delta = 2 eta K G / (product of s_l' over the layers l' from the node's to L-1).
        """
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

    def in_parts(
        self, premises: Premises, protecting: np.ndarray, distrusted: frozenset[str]
    ) -> list[np.ndarray]:
        return parts_of_full_noise(premises, protecting, below_heads=True)

    def noise(
        self, premises: Premises, lock_step: LockStep, deviations: Sequence[np.ndarray]
    ) -> Noise:
        network = premises.network
        still = silence(network, lock_step)
        if not premises.privacy.downlink_noise:
            return replace(still, messages=tuple(deviations))
        broadcasts = [np.zeros_like(scale) for scale in still.broadcasts]
        for device, (head_layer, head) in enumerate(premises.heads):
            for layer in range(max(head_layer, 1), network.tree.depth):
                node = network.tree.ancestors[layer][device]
                broadcasts[layer][node] = deviations[head_layer][head]
        return replace(still, messages=tuple(deviations), broadcasts=tuple(broadcasts))

    positions = staticmethod(positions_by_noise)

    def laws(self, premises: Premises) -> Laws:
        """One release a window; many step sizes share laws, rounded up."""
        plans, privacy = premises.plans, premises.privacy
        share_laws = len({plan.step_size for plan in plans}) > _MOST_STEP_SIZES

        def laws(position: Position, plan: RoundPlan) -> Composition:
            spread = plan.step_size * (privacy.smoothness or 0.0)
            growth = 1.0 + (_rounded(spread, ceil) if share_laws else spread)
            part = _rounded(plan.pull, floor) if share_laws else plan.pull
            pull = Pull(part, received=plan.center == "received")
            counts: Counter[ShiftLaw] = Counter()
            for window in windows(plan, position.head_layer, privacy.downlink_noise):
                path = (window, position.head_layer, position.shares)
                if privacy.unit == "device":
                    counts[device_law(*path)] += 1
                else:
                    rate = position.sampling_rate
                    counts[record_law(*path, rate, privacy.drift, growth, pull)] += 1
            return tuple(counts.items())

        return laws

    def releases(self, premises: Premises, position: Position, laws: Laws) -> list[Release]:
        """Who sees which message at the end of a window."""
        return _Lines(position, premises.traffic, laws).all()

    def drift(self, privacy: PrivacyConfig) -> str:
        return privacy.drift

    def assumptions(self, privacy: PrivacyConfig) -> list[str]:
        if privacy.unit == "record" and privacy.drift == "smooth":
            return [f"the loss is {privacy.smoothness:g}-smooth, as declared"]
        return []


def _rounded(value: float, way: Callable[[float], int]) -> float:
    """To a power of 1.2, so that decaying step sizes share their laws: growths up, pulls down."""
    slack = 1e-9 if way is floor else -1e-9
    return 1.2 ** way(log(value, 1.2) + slack) if value > 0 else 0.0


@dataclass(frozen=True)
class _Lines:
    """The lines of one position, put together."""

    position: Position
    traffic: Traffic
    laws: Laws

    @property
    def noised_below(self) -> bool:
        """Whether what travels back down to devices below the head is noised.

        Such a broadcast carries the head's noise alone, and the devices that start from it carry
        on what it tells; siblings' noise hides only what passes the parent.
        """
        return self.traffic.noised_down and not self.position.is_device

    @property
    def further(self) -> View:
        """v of those whom the head's message reaches in a mean."""
        return "message" if self.noised_below else "mean"

    @property
    def received(self) -> View:
        """v of those whom the head's message is sent to."""
        return self.further if self.position.summed else "message"

    @property
    def shown_to_siblings(self) -> View:
        """v of other devices of the same lowest server."""
        alone = self.position.is_device or self.position.joins is not None
        return self.further if alone else self.received

    def line(
        self, kind: str, view: View, sees: str, assumption: str, who: str | None = None
    ) -> Release:
        deviation = unsubtractable(self.position, view, kind, self.traffic)
        observer = OBSERVERS[kind] if who is None else who
        return Release(self.position, kind, observer, sees, deviation, assumption, self.laws)

    def words(self, kind: str) -> Release:
        return in_words(self.position, kind, self.laws)

    def near(self, kind: str, who: str | None = None) -> Release:
        """The line of somebody whom the head's message is sent to."""
        if self.received == "message":
            return self.line(kind, "message", "the noised model at every release", "–", who)
        return self.line(kind, "mean", "the sum of noised models at every release", "–", who)

    def far(self, kind: str, assumption: str | None = None, who: str | None = None) -> Release:
        """The line of somebody further away."""
        if self.noised_below:
            sees, rests = "models that follow from the head's releases", "as if all were seen"
        elif self.position.head_layer == 0:
            sees, rests = "the noised global model", "–"
        else:
            sees = "the noised mean of the parent's children"
            rests = "as if the parent's mean were seen at every release"
        return self.line(kind, self.further, sees, assumption or rests, who)

    def clear(self, kind: str, sees: str) -> Release:
        return in_clear(self.position, kind, sees, self.laws)

    def all(self) -> list[Release]:
        own = self.of_a_device() if self.position.is_device else self.below()
        siblings = [line for line in own if line.kind == "siblings"]
        elected = self.super_nodes(siblings[0]) if self.traffic.elected and siblings else []
        return [*self.above(), *own, *elected]

    def super_nodes(self, siblings: Release) -> list[Release]:
        """The zone's other devices, which are elected by turns, and else its siblings."""
        otherwise = 0.0
        if siblings.deviation:
            path = (self.position, self.shown_to_siblings, "super_nodes", self.traffic)
            otherwise = unsubtractable(*path, place="siblings")
        return [of_super_node(self.near("super_nodes"), otherwise, self.traffic)]

    def above(self) -> list[Release]:
        """The head's parent, what lies beyond it, and whoever gets the global model."""
        position, lines = self.position, []
        if position.head_layer == 0:  # everybody else is below it
            there = self.traffic.untrusted_servers, bool(self.traffic.colluding), True
            kinds = zip(("servers", "colluders", "public"), there, strict=True)
            return [self.far(kind) for kind, is_there in kinds if is_there]
        if position.parent_is_trusted:
            if position.is_device and not position.cloud_reads:
                trusted = unsubtractable(position, "message", "trusted_servers", self.traffic)
                sees = "the noised model at every release"
                who = "its trusted parent"
                lines.append(
                    Release(position, "trusted_servers", who, sees, trusted, "–", self.laws)
                )
            lines.append(self.far("cloud"))
        elif position.parent_is_cloud:
            lines.append(self.near("cloud", "the cloud, its parent"))
        elif position.cloud_reads:
            lines += [self.far("servers"), self.near("cloud")]
        else:
            lines += [self.near("servers", "its untrusted parent"), self.far("cloud")]
        if self.traffic.cloud_is_trusted:
            lines = [line for line in lines if line.kind != "cloud"]
            if position.is_device and not position.parent_is_trusted:
                lines.append(self.far("trusted_servers", who="the trusted cloud"))
        if self.traffic.untrusted_servers and all(line.kind != "servers" for line in lines):
            lines.append(self.far("servers"))
        if not (position.is_device and position.parent_is_cloud):  # in a star all are siblings
            lines.append(self.far("far_devices"))
        if self.traffic.colluding:
            open_to = "mean" if position.parent_is_trusted else self.received
            sees = "the noised models, or their sums, at every release"
            lines.append(self.line("colluders", open_to, sees, "–"))
        return [*lines, self.far("public")]

    def of_a_device(self) -> list[Release]:
        """Where every device is its own head: its siblings, and listeners on its links."""
        lines = []
        if self.position.mean_but_one is not None:
            lines.append(self.far("siblings", _ALONE))
        heard = self.words("uplinks") if self.position.masked_up else self.near("uplinks")
        return [*lines, heard, self.far("downlinks")]

    def below(self) -> list[Release]:
        """Where the head is a trusted server: those below it, and listeners on their links."""
        position, head_layer = self.position, self.position.head_layer
        layers = set() if self.traffic.noised_down else self.traffic.layers
        aggregated = {layer for layer in layers if layer >= max(head_layer, 1)}
        lines = []
        for kind in ("siblings", "downlinks"):
            if aggregated:
                lines.append(self.clear(kind, "un-noised local aggregations"))
            elif position.joins is not None and not self.noised_below:
                lines.append(self.far(kind))
            else:
                lines.append(self.near(kind))
        if any(position.has_cousins(layer) for layer in aggregated):
            lines.append(self.clear("cousins", "un-noised local aggregations"))
        elif position.has_cousins(head_layer):
            lines.append(self.far("cousins"))
        lines.append(self.clear("uplinks", "un-noised models on their way to the head"))
        return [*lines, trusted_above(position, "un-noised models", self.laws)]
