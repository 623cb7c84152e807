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

import numpy as np
from torch import Tensor

from m2fdp.adversaries.inversion import Message
from m2fdp.core.engine.process import Process
from m2fdp.core.errors import InputError
from m2fdp.core.privacy import sight
from m2fdp.core.privacy.mechanisms import LockStep
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network

OBSERVER = "attack.observer"


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
                return _upward(network, number, message, layer, node)
        if top < max(head, 1):
            attacker = _attacker(network, row, device, top)
            if attacker is not None:
                return _downward(vantage, number, top, device, attacker)
    return None


def _upward(network: Network, stretch: int, message: sight.Message, layer: int, node: int) -> Place:
    if message.form == "alone":
        return Place(stretch, "up", layer, node)
    if message.to_cloud:
        return Place(stretch, "up", 1, 0, summed=True)
    reader = int(network.tree.parents[layer - 1][node])
    return Place(stretch, "up", layer, reader, summed=True)


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


def _downward(vantage: Vantage, stretch: int, top: int, device: int, attacker: int) -> Place:
    tree = vantage.network.tree
    node = int(tree.ancestors[top][device])
    sends = attacker >= 0 and vantage.senders_layer(attacker) == tree.depth
    return Place(stretch, "down", top, node, own=attacker if sends else None)


@dataclass(frozen=True, eq=False)
class Heard:
    """What a tap has heard in a round: `up`, messages (N_l, M) by (stretch, layer), and `down`,
    models (N_top, M) by stretch. `start` is the model (M,) before the round, `first` that before
    all rounds."""

    start: Tensor
    up: dict[tuple[int, int], Tensor]
    down: dict[int, Tensor]
    first: Tensor


def listen_in(process: Process, plans: Sequence[RoundPlan]) -> Heard:
    """Run the rounds, with a tap in the last of them."""
    state = process.start()
    first = state.weights.clone()
    for plan in plans[:-1]:
        state = process.round(state, plan)
    up: dict[tuple[int, int], Tensor] = {}
    down: dict[int, Tensor] = {}

    def tap(direction: str, layer: int, models: Tensor) -> None:
        if direction == "up":
            up[len(down), layer] = models.clone()
        else:
            down[len(down)] = models.clone()

    start = state.weights.clone()
    state = process.round(state, plans[-1], tap)
    down[len(down)] = state.weights.clone()[None]
    return Heard(start, up, down, first)


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
            OBSERVER,
            observer,
            "reads no message of this network's rounds: nobody is one, it gets random words, or it "
            "is inside a trusted group whose gradients it sees in clear; choose another",
        )
    last_round = listen_in(process, plans)
    handed_over: set[tuple[int, ...]] = set()
    for place in places:
        message = _message(vantage, last_round, place, len(plans))
        key = (place.stretch, *message.devices.tolist())
        if key not in handed_over and len(message.devices):
            handed_over.add(key)
            yield message


def _message(vantage: Vantage, heard: Heard, place: Place, rounds: int) -> Message:
    """What is read at a place, as updates of the devices below it."""
    network = vantage.network
    tree, devices_layer = network.tree, network.tree.depth
    _, steps, _ = vantage.plan.stretches[place.stretch]
    start, node, layer = heard.start, place.node, place.layer
    if place.direction == "up" and place.summed:
        layer = place.layer - 1
    devices, shares = _below(network, layer, node)
    if place.direction == "end":
        sees, start, steps = "the final model", heard.first, steps * rounds
        update = heard.down[place.stretch][0] - start
    elif place.direction == "down":
        sees, update = "a broadcast", heard.down[place.stretch][node] - start
        if place.own is not None:
            sees = "a broadcast, less its own message"
            own_share = float(shares[devices == place.own][0])
            sent = heard.up[place.stretch, devices_layer][place.own]
            update = update - own_share * (sent - start)
            shares, devices = shares[devices != place.own], devices[devices != place.own]
    elif not place.summed:
        sees = "a device's message" if place.layer == devices_layer else "a server's message"
        update = heard.up[place.stretch, place.layer][node] - start
    else:
        models = heard.up[place.stretch, place.layer]
        members = np.flatnonzero(tree.parents[layer] == node)
        weights = models.new_tensor(network.weights[layer][members])[:, None]
        update = (weights * (models[members] - start)).sum(0)
        sees = f"a sum of {len(members)} messages"
        if network.sums.decode == "cloud":
            sees = f"a sum of {len(devices)} devices' messages"
    return Message(sees, devices, shares, start, update, steps, vantage.plan.step_size)


def _below(network: Network, layer: int, node: int) -> tuple[np.ndarray, np.ndarray]:
    """The devices below a node, int64 (n,), and what each counts with in its model, float64."""
    devices = np.flatnonzero(network.tree.ancestors[layer] == node)
    return devices, network.shares(network.tree.depth, layer)[devices]


def broadcasts(process: Process, plans: Sequence[RoundPlan]) -> Iterator[Tensor]:
    """The global models after each round, (M,), as whoever receives broadcasts reads them."""
    state = process.start()
    for plan in plans:
        state = process.round(state, plan)
        yield state.weights
