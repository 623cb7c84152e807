"""From an observer of the ledger to exactly the messages of the real round loop that it can read.

For a device and an observer that is the lowest message on the device's path, the first in the
round: what is read above it, or later, is made of it (`m2fdp.core.privacy.releases`, the one rule).
Messages that are read as sums are handed over as sums. Who receives a broadcast takes out what it
has sent itself.

Steps inside a trusted group are no messages of the round loop: who reads them sees gradients in
clear, which the ledger's line says, and needs no attack.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from m2fdp.adversaries.heard import heard_by
from m2fdp.adversaries.inversion import Message
from m2fdp.core.engine.process import Process
from m2fdp.core.errors import InputError
from m2fdp.core.privacy import sight
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network


@dataclass(frozen=True)
class Place:
    """Where an observer reads something of a device.

    Attributes:
        stretch: the number of the aggregation in the round, from 0.
        direction: `up`, what nodes of a layer send; `down`, what one of them hands to all below;
            `end`, the model after the round.
        layer: layer of the sender, or of those whose sum is read.
        node: the sender, or the sum's reader.
        summed: whether only the sum of what siblings send is read.
        own: the device that takes out what it has sent itself; None = nobody does.
    """

    stretch: int
    direction: str
    layer: int
    node: int
    summed: bool = False
    own: int | None = None


@dataclass(frozen=True, eq=False)
class Vantage:
    """What decides who reads what in a round: the run's network, without participants that are
    drawn; the learners of its mechanism; the round's plan."""

    network: Network
    lock_step: LockStep
    plan: RoundPlan

    def senders_layer(self, device: int) -> int:
        """The lowest layer from which the device's models are sent up."""
        return int(self.lock_step.nodes[self.lock_step.group_of[device], 0])


def place_of(vantage: Vantage, observer: str, device: int) -> Place | None:
    """The lowest message of the device that an observer of this kind reads first; None = none.

    Where devices of other servers attack, the first of them does, and the device's own siblings
    where siblings do.
    """
    network, row = vantage.network, sight.KINDS[observer]
    if row.handed == sight.FINAL:
        return Place(len(vantage.plan.stretches) - 1, "end", 0, 0)
    head = vantage.senders_layer(device)
    if head < network.tree.depth and row.up in (sight.ON_LINKS, sight.TO_TRUSTED):
        return None
    alone = row.up != sight.TO_ITS_READER  # who colludes is an observer by itself
    for number, (*_, top) in enumerate(vantage.plan.stretches):
        for layer in range(head, top, -1):
            node = int(network.tree.ancestors[layer][device])
            message = sight.message_of(network, layer, node)
            if alone and row.reads(message):
                if message.form == "alone":
                    return Place(number, "up", layer, node)
                if message.to_cloud:
                    return Place(number, "up", 1, 0, summed=True)
                reader = int(network.tree.parents[layer - 1][node])
                return Place(number, "up", layer, reader, summed=True)
        if top < max(head, 1):
            attacker = _attacker(network, row, device, top)
            if attacker is not None:
                node, depth = int(network.tree.ancestors[top][device]), network.tree.depth
                sends = attacker >= 0 and vantage.senders_layer(attacker) == depth
                return Place(number, "down", top, node, own=attacker if sends else None)
    return None


def _attacker(network: Network, row: sight.Kind, device: int, top: int) -> int | None:
    """Who receives what travels down from the device's ancestor at a layer: -1 is no device."""
    if row.handed != sight.EVERY and (row.handed != sight.GLOBAL or top > 0):
        return None  # cousins receive some others, and are an observer of their own
    if row.drew == sight.NOBODY:
        return -1
    if row.up == sight.TO_SERVERS:  # servers on the device's own path have read more of it before
        return -1 if any(not trusted.all() for trusted in network.trust[1:]) else None
    if row.drew not in (sight.BESIDE, sight.ELSEWHERE):
        return None
    zones = network.tree.parents[-1]
    beside = (zones == zones[device]) == (row.drew == sight.BESIDE)
    others = np.flatnonzero(beside & (np.arange(len(zones)) != device))
    return int(others[0]) if len(others) else None


@dataclass(frozen=True, eq=False)
class _Heard:
    """What a tap has heard in a round: `up`, messages (N_l, M) by (stretch, layer), and `down`,
    models (N_top, M) by stretch. `start` is the model (M,) before the round, `first` that before
    all rounds."""

    start: Tensor
    up: dict[tuple[int, int], Tensor]
    down: dict[int, Tensor]
    first: Tensor


def _listen_in(process: Process, plans: Sequence[RoundPlan]) -> _Heard:
    """Run the rounds, with a tap in the last of them."""
    state = process.start()
    first = state.weights.clone()
    for plan in plans[:-1]:
        state = process.round(state, plan)
    heard = _Heard(state.weights.clone(), {}, {}, first)

    def tap(direction: Literal["up", "down"], layer: int, models: Tensor) -> None:
        stretch = len(heard.down)
        if direction == "up":
            heard.up[stretch, layer] = models.clone()
        else:
            heard.down[stretch] = models.clone()

    state = heard_by(process, tap).round(state, plans[-1])
    heard.down[len(heard.down)] = state.weights.clone()[None]
    return heard


def overhear(
    process: Process,
    network: Network,
    lock_step: LockStep,
    plans: Sequence[RoundPlan],
    observer: str,
) -> Iterator[Message]:
    """The different messages that an observer of this kind reads in the last of some rounds; an
    `InputError` where nobody of this kind reads one."""
    vantage = Vantage(network, lock_step, plans[-1])
    places_of = (place_of(vantage, observer, device) for device in range(network.tree.n_devices))
    places = list(dict.fromkeys(place for place in places_of if place is not None))
    if not places:
        raise InputError(
            "attack.observer",
            observer,
            "reads no message of this network's rounds: nobody is one, it gets random words, or it "
            "is inside a trusted group whose gradients it sees in clear; choose another",
        )
    last_round = _listen_in(process, plans)
    handed_over: set[tuple[int, ...]] = set()
    for place in places:
        message = _message(vantage, last_round, place, len(plans))
        key = (place.stretch, *message.devices.tolist())
        if key not in handed_over and len(message.devices):
            handed_over.add(key)
            yield message


def _message(vantage: Vantage, heard: _Heard, place: Place, rounds: int) -> Message:
    """What is read at a place, as updates of the devices below it."""
    network = vantage.network
    tree, devices_layer = network.tree, network.tree.depth
    _, steps, _ = vantage.plan.stretches[place.stretch]
    start, node = heard.start, place.node
    layer = place.layer - 1 if place.summed else place.layer
    devices = np.flatnonzero(tree.ancestors[layer] == node)
    shares = network.shares(devices_layer, layer)[devices]
    if place.direction == "end":
        sees, start, steps = "the final model", heard.first, steps * rounds
        update = heard.down[place.stretch][0] - start
    elif place.direction == "down":
        sees, update = "a broadcast", heard.down[place.stretch][node] - start
        if place.own is not None:
            sees = "a broadcast, less its own message"
            others = devices != place.own
            own_share = float(shares[~others][0])
            sent = heard.up[place.stretch, devices_layer][place.own]
            update = update - own_share * (sent - start)
            shares, devices = shares[others], devices[others]
    elif not place.summed:
        sees = "a device's message" if layer == devices_layer else "a server's message"
        update = heard.up[place.stretch, layer][node] - start
    else:
        models = heard.up[place.stretch, place.layer]
        members = np.flatnonzero(tree.parents[layer] == node)
        weights = models.new_tensor(network.weights[layer][members])[:, None]
        update = (weights * (models[members] - start)).sum(0)
        sees = f"a sum of {len(members)} messages"
        if network.sums.decode == "cloud":
            sees = f"a sum of {len(devices)} devices' messages"
    return Message(sees, devices, shares, start, update, steps, vantage.plan.step_size)


def broadcasts(process: Process, plans: Sequence[RoundPlan]) -> Iterator[Tensor]:
    """The global models after each round, (M,), as whoever receives broadcasts reads them."""
    state = process.start()
    for plan in plans:
        state = process.round(state, plan)
        yield state.weights
