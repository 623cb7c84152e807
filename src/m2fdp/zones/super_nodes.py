"""Super-nodes that a zone elects from its own devices (H Sec. IV-A).

A zone is a lowest server with its devices. Where super-nodes are elected, one of the devices that
take part is the server for a round. So the zone trusts its own devices with its messages
(H Sec. III-A), each of them in turn.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature, always
from m2fdp.core.experiment.request import Request
from m2fdp.core.privacy.premises import Position, Premises
from m2fdp.core.privacy.releases import (
    WORDS,
    Account,
    AlikeRounds,
    Past,
    Release,
    in_clear,
    in_words,
)
from m2fdp.core.privacy.sight import (
    EVERY,
    KINDS,
    SIBLINGS,
    TO_ITS_READER,
    TOGETHER,
    Kind,
    Reading,
)
from m2fdp.core.topology.network import Network, heads_of
from m2fdp.zones.room import SUPER_NODES as ELECTED


def with_elections(plan: Plan, config: Config) -> Plan:
    """The plan with the lowest servers elected, if they are; an `InputError` where there are none,
    or more of a zone's devices collude than its elections stand."""
    network, elections = plan.network, config.topology.super_nodes
    if elections.kind == "fixed":
        return plan
    if network.tree.depth < 2:
        problem = "needs servers between cloud and devices, which this network, a star, has not"
        raise InputError("topology.super_nodes.kind", elections.kind, f"{problem}; use fixed")
    chance, colluding = 1.0 if network.chance is None else network.chance, config.threat.colluding
    on_line = network.present * chance  # those expected
    too_many = colluding > (on_line - 1) / 3  # H Sec. IV-A
    if too_many.any():
        zone = int(np.argmax(too_many))
        problem = (
            f"is too many of the m = {on_line[zone]:g} devices on line in zone "
            f"{network.tree.names[-2][zone]} for its elections; valid: at most (m - 1)/3"
        )
        raise InputError("threat.colluding", colluding, problem)
    return replace(plan, network=replace(network, members_serve=True))


def zone_read_in_clear(network: Network) -> str | None:
    """The name of a zone whose elected super-nodes read something of its devices without noise, if
    there is one."""
    if not network.members_serve:
        return None
    tree = network.tree
    layers, _ = heads_of(network).T
    in_clear = layers < tree.depth
    if _hidden(network):
        in_clear &= layers > 0  # who adds no noise of its own gets words only
    exposed = np.flatnonzero(in_clear)
    return tree.names[-2][tree.parents[-1][exposed[0]]] if exposed.size else None


def _hidden(network: Network) -> bool:
    """Whether super-nodes get masked words of devices' messages."""
    return network.tree.depth in network.sums.layers and network.sums.decode == "cloud"


@dataclass(frozen=True)
class ByTurns(Account):
    """The account of an observer that sees more in some rounds, counted as if in all, and else
    behind the deviation `otherwise`."""

    otherwise: float

    @property
    def noises(self) -> tuple[float, ...]:
        return (self.otherwise,)

    def behind(self, remaining: Callable[[float], float]) -> Account:
        return replace(self, otherwise=remaining(self.otherwise))

    def words(self, line: Release, shown: Sequence[AlikeRounds], past: Past) -> list[str]:
        return ["as if it served in every round: nobody knows who will be elected"]


def _line(
    premises: Premises,
    position: Position,
    reading: Reading,
    line: Callable[[Reading], Release],
) -> Release:
    """The line of the zone's other devices: what one reads that serves, and what it reads else. It
    draws what its server adds, and others tell it what they draw."""
    told = premises.threat.colluding
    serving = replace(reading.row, up=TO_ITS_READER, drew=TOGETHER)
    peer = replace(reading.row, up=KINDS[SIBLINGS].up, drew=KINDS[SIBLINGS].drew)
    if told:
        peer = replace(peer, drew=TOGETHER)
    reader = line(replace(reading, row=serving, at="head"))
    otherwise = line(replace(reading, row=peer)).deviation
    if _hidden(position.network) and (position.is_device or position.head_layer == 0):
        words = in_words(position, reading.kind, reader.laws)
        sees = f"{WORDS}, and broadcasts"
        reader = replace(words, sees=sees, deviation=reader.deviation)
    elif not position.is_device:
        sees = "un-noised messages, or their sum"
        reader = in_clear(position, reading.kind, sees, reader.laws)
    if told:
        told_all = f"{told} others tell it what they draw, and what they see when they serve"
        rests = f"{reader.assumption}; {told_all}".removeprefix("–; ")
        reader = replace(reader, assumption=rests)
    return replace(reader, account=ByTurns(otherwise))


SUPER_NODES = Kind(
    "another device of the zone, when it is elected",
    "what the lowest server reads, when it serves",
    EVERY,
    "a device of the same server, and the server in its rounds",
    told=True,
    bound_with=SIBLINGS,
    line=_line,
)


FACTS = (
    replace(
        a.FIXED_SERVERS,
        key="topology.super_nodes.kind",
        remedy="fixed",
        holds=lambda run: not run.network.members_serve,
    ),
)


def _of_threat(run: Request) -> Iterator[InputError]:
    """Who serves by turns reads in clear, and is not distrusted where nobody is elected."""
    named = set(run.config.threat.distrusted)
    zone = zone_read_in_clear(run.network) if run.plan.private else None
    bound = {SIBLINGS, ELECTED} & (run.plan.distrusts | named)
    for kind in sorted(bound, key=lambda kind: (kind not in named, kind)):
        if zone is not None:
            text = (
                f"can't be protected from ({kind}) in zone {zone}, whose devices are its "
                "super-nodes by turns (topology.super_nodes.kind: elected) and read its messages "
                "un-noised; let devices add the noise, or use fixed"
            )
            by_algorithm = "algorithm", run.config.algorithm
            refused = ("threat.distrusted", kind) if kind in named else by_algorithm
            yield InputError(*refused, text)
    if ELECTED in named and not run.network.members_serve:
        text = "are elected ones (topology.super_nodes.kind: elected); fixed ones are servers"
        yield InputError("threat.distrusted", ELECTED, text)


FEATURES = (Feature("threat, in zones", always, values=_of_threat),)
