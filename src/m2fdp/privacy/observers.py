"""Who sees what of whom: the lines of a run's ledger, and the laws of what they see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial
from math import ceil, log

import numpy as np

from m2fdp.config import PrivacyConfig, ThreatConfig
from m2fdp.errors import InputError
from m2fdp.privacy.accounting import Composition, ShiftLaw, subsampled
from m2fdp.privacy.ledger import Ledger, Line
from m2fdp.privacy.positions import Position, positions
from m2fdp.privacy.taint import device_law, record_law, windows
from m2fdp.schedule.rounds import RoundPlan
from m2fdp.topology.network import Network

_EVERYBODY = {
    "servers": "untrusted servers",
    "cloud": "the cloud",
    "siblings": "devices of the same server",
    "cousins": "devices of other servers below the same head",
    "far_devices": "devices elsewhere",
    "public": "anyone with the final model",
    "uplinks": "eavesdropper on uplinks",
    "downlinks": "eavesdropper on downlinks",
}
# What the line of a device's siblings rests on.
_ALONE = "siblings do not pool what they know of their own noises"
# Beyond so many step sizes their growths are rounded up to share laws, each of which takes time.
_MOST_STEP_SIZES = 8


def build_ledger(
    network: Network,
    rates: np.ndarray,
    noise: Sequence[np.ndarray],
    units: np.ndarray,
    plans: Sequence[RoundPlan],
    privacy: PrivacyConfig,
    threat: ThreatConfig,
) -> Ledger:
    """The ledger of a run.

    Args:
        rates: float64 (N_L,), q_j.
        noise: for layer l = 1…L, float64 (N_l,): the standard deviation that the node adds, to
            its messages under `upload` and to its group's gradients under `gradient`.
        units: float64 (N_L,): what shift 1 of a device's law means, in the unit of `noise`.
        plans: the rounds t = 1…T.

    Raises:
        InputError: nobody whom `threat` distrusts receives anything in this network.
    """
    gradient = privacy.mechanism == "gradient"
    aggregated = {layer for plan in set(plans) for layer in plan.layers if layer is not None}
    untrusted_servers = any(not trusted.all() for trusted in network.trust[1:])
    lines = [
        line
        for position in positions(network, rates, noise, units)
        for line in (
            _gradient_lines(position)
            if gradient
            else _upload_lines(position, aggregated, untrusted_servers, privacy.downlink_noise)
        )
    ]
    distrusted = distrusted_kinds(threat)
    present = {line.kind for line in lines}
    if not distrusted & present:
        raise InputError(
            "threat.distrusted",
            ", ".join([*threat.distrusted, *threat.open_links]),
            "are nobody in this network, so that there is nothing to verify; present are "
            + ", ".join(sorted(present - {"trusted_servers"})),
        )
    step_sizes = {plan.step_size for plan in plans}
    upload_laws = partial(_upload_laws, share_laws=len(step_sizes) > _MOST_STEP_SIZES)
    laws = _gradient_laws if gradient else upload_laws
    return Ledger(
        tuple(lines),
        lru_cache(maxsize=None)(partial(laws, privacy=privacy)),
        tuple(plans),
        distrusted,
        privacy.delta,
        privacy.adjacency,
    )


def open_ledger(
    n_devices: int, plans: Sequence[RoundPlan], privacy: PrivacyConfig, threat: ThreatConfig
) -> Ledger:
    """The ledger of a run without noise: everybody sees everything in clear."""
    position = Position(tuple(range(n_devices)), 0, True, (), 1.0, 1.0, 0.0, 0.0, None, False)
    lines = tuple(
        Line(position, who, kind, "un-noised models", 0.0, "–") for kind, who in _EVERYBODY.items()
    )
    return Ledger(
        lines,
        lambda position, plan: ((subsampled(1.0), 1),),
        tuple(plans),
        distrusted_kinds(threat),
        privacy.delta,
        privacy.adjacency,
    )


def distrusted_kinds(threat: ThreatConfig) -> frozenset[str]:
    """The kinds of observers that a threat model distrusts; cousins are devices elsewhere too."""
    cousins = ["cousins"] if "far_devices" in threat.distrusted else []
    return frozenset([*threat.distrusted, *threat.open_links, *cousins])


def _gradient_laws(position: Position, plan: RoundPlan, privacy: PrivacyConfig) -> Composition:
    """One release a local step."""
    rate = 1.0 if privacy.unit == "device" else position.sampling_rate
    return ((subsampled(rate), len(plan.layers)),)


def _upload_laws(
    position: Position, plan: RoundPlan, privacy: PrivacyConfig, share_laws: bool
) -> Composition:
    """One release a window; `share_laws` where so many step sizes would make as many laws."""
    spread = plan.step_size * (privacy.smoothness or 0.0)
    growth = 1.0 + (_rounded_up(spread) if share_laws else spread)
    laws: Counter[ShiftLaw] = Counter()
    for window in windows(plan, position.head_layer, privacy.downlink_noise):
        if privacy.unit == "device":
            laws[device_law(window, position.head_layer, position.shares)] += 1
        else:
            laws[
                record_law(
                    window,
                    position.head_layer,
                    position.shares,
                    position.sampling_rate,
                    privacy.drift,
                    growth,
                )
            ] += 1
    return tuple(laws.items())


def _rounded_up(growth: float) -> float:
    """To the next power of 1.2, so that decaying step sizes share their laws."""
    return 1.2 ** ceil(log(growth, 1.2) - 1e-9) if growth > 0 else 0.0


def _gradient_lines(position: Position) -> list[Line]:
    """Under `gradient` all that leaves the head is computed from its noised gradients."""
    noised = "what follows from every step's noised gradient"
    rests = "as if every noised gradient were seen"
    nobody = set() if position.has_cousins(position.head_layer) else {"cousins"}

    def line(kind: str) -> Line:
        if kind == "uplinks" and not position.is_device:
            return _in_clear(position, kind, "clipped gradients on their way to the head")
        return Line(position, _EVERYBODY[kind], kind, noised, position.noise, rests)

    lines = [line(kind) for kind in _EVERYBODY if kind not in nobody]
    return lines if position.is_device else [*lines, _trusted(position, "clipped gradients")]


def _upload_lines(
    position: Position, aggregated: set[int], untrusted_servers: bool, downlink_noise: bool
) -> list[Line]:
    """Who sees which message at the end of a window.

    Args:
        aggregated: the layers up to which models travel at some time.
        untrusted_servers: whether the network has any; they hand every broadcast on.
        downlink_noise: whether what travels back down to devices below the head is noised.
    """
    # A broadcast below the head carries the head's noise alone, and the devices that start from
    # it carry on what it tells; siblings' noise hides only what passes the parent.
    noised_below = downlink_noise and not position.is_device
    crowd = position.noise if noised_below else position.crowd
    seen = "the noised mean of the parent's children"
    rests = "as if the parent's mean were seen at every release"
    if noised_below:
        seen, rests = "models that follow from the head's releases", "as if all were seen"

    def behind_own(kind: str, who: str) -> Line:
        return Line(position, who, kind, "the noised model at every release", position.noise, "–")

    def behind_crowd(kind: str, noise: float = crowd, assumption: str = rests) -> Line:
        return Line(position, _EVERYBODY[kind], kind, seen, noise, assumption)

    lines = []
    if position.parent_is_trusted:
        if position.is_device:
            lines.append(behind_own("trusted_servers", "its trusted parent"))
        lines.append(behind_crowd("cloud"))
    elif position.parent_is_cloud:
        lines.append(behind_own("cloud", "the cloud, its parent"))
    else:
        lines += [behind_own("servers", "its untrusted parent"), behind_crowd("cloud")]
    if untrusted_servers and all(line.kind != "servers" for line in lines):
        lines.append(behind_crowd("servers"))
    if not (position.is_device and position.parent_is_cloud):  # in a star all are siblings
        lines.append(behind_crowd("far_devices"))
    lines.append(behind_crowd("public"))
    if position.is_device:
        if position.crowd_without_one is not None:
            lines.append(behind_crowd("siblings", position.crowd_without_one, _ALONE))
        lines += [behind_own("uplinks", _EVERYBODY["uplinks"]), behind_crowd("downlinks")]
        return lines
    in_clear = set() if downlink_noise else {x for x in aggregated if x >= position.head_layer}
    for kind in ("siblings", "downlinks"):
        if in_clear:
            lines.append(_in_clear(position, kind, "un-noised local aggregations"))
        else:
            lines.append(behind_own(kind, _EVERYBODY[kind]))
    if any(position.has_cousins(layer) for layer in in_clear):
        lines.append(_in_clear(position, "cousins", "un-noised local aggregations"))
    elif position.has_cousins(position.head_layer):
        lines.append(behind_crowd("cousins"))
    lines.append(_in_clear(position, "uplinks", "un-noised models on their way to the head"))
    return [*lines, _trusted(position, "un-noised models")]


def _in_clear(position: Position, kind: str, sees: str) -> Line:
    return Line(position, _EVERYBODY[kind], kind, sees, 0.0, "–")


def _trusted(position: Position, sees: str) -> Line:
    kind, who = "trusted_servers", "the trusted servers above"
    return Line(position, who, kind, sees, 0.0, "trusted by declaration")
