"""Who reads what: one table, a row a kind of observer.

Four things define an observer: the messages on a record's path that it reads, its broadcasts,
whose noise it knows, and whether it is told who takes part. `m2fdp.core.privacy.releases` says the
rest. The ledger asks by position (`readings`), attacks by node and moment. A new kind is a row of
`KINDS` and a name among the `kinds` of `readings`. A room's is a row of `Room.observers`, and lines
by `Room.lines`: who is distrusted and has none is refused. `ThreatConfig` lists whom users name.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from m2fdp.core.config import ThreatConfig
from m2fdp.core.privacy.premises import Position, Premises
from m2fdp.core.rooms import Catalogue
from m2fdp.core.rooms import rooms as rooms_of_all
from m2fdp.core.topology.network import Network, SecureSums

Form = Literal["alone", "sum", "words"]
At = Literal["head", "further", "words", "below", "local"]


@dataclass(frozen=True)
class Message:
    """What a node sends up."""

    to_cloud: bool  # the cloud reads it; else the node's parent does
    trusted: bool  # its reader is
    form: Form  # read alone, in a sum, or as masked words, which nobody on the way reads


def message_in(sums: SecureSums, layer: int) -> Message:
    """What nodes of a layer send to untrusted readers."""
    past_parents = sums.decode == "cloud"
    holds_words = past_parents and any(at > layer for at in sums.layers)
    summed = layer in sums.layers or (holds_words and layer == 1)
    form: Form = "sum" if summed else "words" if holds_words else "alone"
    return Message(layer == 1 or (summed and past_parents), False, form)


def message_of(network: Network, layer: int, node: int) -> Message:
    """What a node of a layer sends."""
    message = message_in(network.sums, layer)
    reader, at = (0, 0) if message.to_cloud else (network.tree.parents[layer - 1][node], layer - 1)
    return replace(message, trusted=bool(network.trust[at][reader]))


def sent_by_head(position: Position) -> Message:
    """What the head sends. A message that a trusted parent forwards counts as read by it."""
    to_cloud = position.parent_is_cloud or position.cloud_reads
    return Message(to_cloud, position.parent_is_trusted, "sum" if position.summed else "alone")


NOTHING = "–"
# Messages that an observer reads on their way up, in words.
TO_SERVERS = "what is sent to untrusted servers"
TO_CLOUD = "what is sent to the cloud"
TO_ITS_READER = "what somebody untrusted reads first"
TO_TRUSTED = "what is sent to trusted servers"
ON_LINKS = "every message that is not masked"

READS: dict[str, Callable[[Message], bool]] = {
    TO_SERVERS: lambda m: not (m.to_cloud or m.trusted or m.form == "words"),
    TO_CLOUD: lambda m: m.to_cloud and not m.trusted,
    TO_ITS_READER: lambda m: not m.trusted and m.form != "words",
    TO_TRUSTED: lambda m: m.trusted and m.form != "words",
    ON_LINKS: lambda m: m.form == "alone",
}

# Which broadcasts are handed to an observer.
EVERY = "every one below its server"
GLOBAL = "global ones"
BETWEEN = "those to its server and the record's"
FINAL = "the last one"

# Whose noise it knows.
SERVERS = "servers"
CLOUD = "the cloud"
BESIDE = "a device of the same server"
BELOW = "a device below the same head"
ELSEWHERE = "a device elsewhere"
COLLUDING = "threat.colluding of them"
TOGETHER = "a device of the same server, and threat.colluding of them"
NOBODY = "–"


@dataclass(frozen=True)
class Kind:
    """A kind of observers: a row of the table.

    Attributes:
        words: its name, in words.
        up, handed, drew: which messages it reads, which broadcasts, and whose noise it knows.
        told: whether it is told which devices join a round by chance.
        stood_for_by: kinds with lines that hold for it where it has none.
        bound_with: a kind that it is a case of: who distrusts that one distrusts it.
        counted: whether rooms' own lines count it, and no reading.
        line: function that makes the line of devices that serve by turns. It takes `Premises`, the
            position, a `Reading` as if they never served, and a function from that to a line.
    """

    words: str
    up: str
    handed: str
    drew: str
    told: bool = False
    stood_for_by: tuple[str, ...] = ()
    bound_with: str = ""
    counted: bool = False
    line: Callable[..., Any] | None = None

    def reads(self, message: Message) -> bool:
        """Whether it makes sense of a message, alone or in a sum."""
        return self.up in READS and READS[self.up](message)

    @property
    def is_device(self) -> bool:
        """Whether it is a device, or devices together."""
        return self.drew in (BESIDE, BELOW, ELSEWHERE) or self.line is not None

    @property
    def reads_local_broadcasts(self) -> bool:
        """Whether it first reads what servers hand down after local aggregations."""
        return self.up == NOTHING and self.handed in (EVERY, BETWEEN)

    @property
    def unknown_from(self) -> int | None:
        """The highest layer with noise on a record's path that it neither draws nor reads below;
        None = there is none above the head."""
        return {TO_CLOUD: 1, NOTHING: 0}.get(self.up)


# By the name under which `threat` distrusts it; rooms bring more.
KINDS: Catalogue[Kind] = Catalogue(
    "observers",
    {
        "servers": Kind("untrusted servers", TO_SERVERS, GLOBAL, SERVERS),
        "cloud": Kind("the cloud", TO_CLOUD, NOTHING, CLOUD),
        "siblings": Kind("devices of the same server", NOTHING, EVERY, BESIDE, told=True),
        "cousins": Kind(
            "devices of other servers below the same head",
            NOTHING,
            BETWEEN,
            BELOW,
            bound_with="far_devices",
        ),
        "far_devices": Kind(
            "devices elsewhere", NOTHING, GLOBAL, ELSEWHERE, stood_for_by=("cousins", "siblings")
        ),
        "public": Kind("anyone with the final model", NOTHING, FINAL, NOBODY),
        "uplinks": Kind("eavesdropper on uplinks", ON_LINKS, NOTHING, NOBODY, told=True),
        "downlinks": Kind("eavesdropper on downlinks", NOTHING, EVERY, NOBODY, told=True),
        "colluders": Kind(
            "servers and some whose noise protects the record, together",
            TO_ITS_READER,
            NOTHING,
            COLLUDING,
        ),
        "trusted_servers": Kind(
            "the trusted servers above", TO_TRUSTED, GLOBAL, SERVERS, told=True
        ),
    },
)
# Kinds that are asked for by name.
PUBLIC, FAR_DEVICES, AT_CLOUD, SIBLINGS = "public", "far_devices", "cloud", "siblings"
LINKS = frozenset({"uplinks", "downlinks"})


@cache
def rows() -> dict[str, Kind]:
    """The table, in the order of the ledger's lines: who is trusted stands last."""
    return dict(sorted(KINDS.items(), key=lambda item: item[1].up == TO_TRUSTED))


@cache
def observers() -> dict[str, str]:
    """Whom `threat` may distrust, in words, by name."""
    return {name: row.words for name, row in rows().items() if row.up != TO_TRUSTED}


def possible_kinds(network: Network, threat: ThreatConfig) -> list[str]:
    """The kinds of observers that there may be in a network."""
    nobody = set() if threat.colluding else {"colluders"}
    if not network.members_serve:
        nobody |= _kinds_by_turns()
    return [kind for kind in observers() if kind not in nobody and not rows()[kind].counted]


def distrusted_kinds(threat: ThreatConfig, network: Network) -> frozenset[str]:
    """The kinds of observers that a threat model distrusts, also as cases of others."""
    distrusted = {*threat.distrusted, *threat.open_links}
    cases = {kind for kind, row in rows().items() if row.bound_with in distrusted}
    if not network.members_serve:
        cases -= _kinds_by_turns()
    return frozenset(distrusted | cases | ({"colluders"} if threat.colluding else set()))


@cache
def _kinds_by_turns() -> frozenset[str]:
    """The kinds of devices that serve as their server, where these are devices by turns."""
    return frozenset(kind for kind, row in rows().items() if row.line is not None)


@cache
def kinds_of_rooms() -> frozenset[str]:
    """The kinds that rooms bring and that nobody but their rooms gives lines, in every run."""
    brought = {kind for room in rooms_of_all() for kind in room.observers} - _kinds_by_turns()
    return frozenset(kind for kind in brought if not rows()[kind].counted)


def lines_of(kind: str, present: Collection[str]) -> list[str]:
    """Of the kinds that have lines, an observer's own, or the first that stands for it."""
    return [name for name in (kind, *KINDS[kind].stood_for_by) if name in present][:1]


def receiver(position: Position) -> str:
    """The kind of observer that the head's message is sent to, as if nobody trusted it."""
    if position.cloud_reads or position.parent_is_cloud:
        return AT_CLOUD
    return "servers" if position.head_layer else PUBLIC


@dataclass(frozen=True)
class Reading:
    """Where an observer reads something of a position's records.

    Attributes:
        observer: who, in words.
        at: the head's own message; further on, in a mean or a broadcast; masked words; messages
            below the head; local aggregations below it.
        exists: whether the network has anybody of the kind, as far as is known.
    """

    kind: str
    observer: str
    row: Kind
    at: At
    exists: bool = True


def readings(premises: Premises, position: Position) -> tuple[Reading, ...]:
    """All who may read something of a position's records: above its head, beyond it, and below."""
    network, device = premises.network, position.is_device
    cloud_is_trusted = bool(network.trust[0][0])
    upwards = ["servers", "cloud"]
    if position.parent_is_trusted or position.parent_is_cloud:
        upwards = ["cloud", "servers"]
    if device and position.parent_is_trusted:
        upwards = ["trusted_servers", *upwards]
    downwards = ["siblings", "downlinks", "cousins", "uplinks", "trusted_servers"]
    if device:
        upwards += ["trusted_servers"] * (cloud_is_trusted and not position.parent_is_trusted)
        downwards = ["siblings", "uplinks", "downlinks"]
    serving = sorted(_kinds_by_turns()) if network.members_serve else []
    nobody = {
        "servers": cloud_is_trusted and not premises.untrusted_servers,
        "cloud": cloud_is_trusted,
        "trusted_servers": device and position.parent_is_trusted and position.cloud_reads,
        "far_devices": position.head_layer == 0,  # all devices are below it
        "cousins": not position.has_cousins(position.head_layer),
        "colluders": not premises.threat.colluding,
    }
    siblings = not device or position.has_siblings
    exists = {
        "servers": premises.untrusted_servers,
        "far_devices": not (device and position.parent_is_cloud),  # in a star all are siblings
        **dict.fromkeys(("siblings", *serving), siblings),
    }
    kinds = [*upwards, "far_devices", "colluders", "public", *downwards, *serving]
    return tuple(
        Reading(kind, *_place(premises, position, rows()[kind]), exists.get(kind, True))
        for kind in kinds
        if not nobody.get(kind, False)
    )


def _place(premises: Premises, position: Position, row: Kind) -> tuple[str, Kind, At]:
    """Who an observer is, in words, and where it reads."""
    words = row.words
    at: At = "further"
    if row.up == ON_LINKS:
        masked = position.network.sums.masked_up(position.head_layer)
        at = ("words" if masked else "head") if position.is_device else "below"
    elif row.up == TO_TRUSTED and not position.is_device:
        at = "below"
    elif row.up == TO_TRUSTED and position.parent_is_trusted:
        words, at = "its trusted parent", "head"
    elif row.up == TO_TRUSTED:
        words = "the trusted cloud"
    elif row.handed in (EVERY, BETWEEN) and not position.is_device:
        at = _handed_below(premises, position, row)
    elif position.head_layer > 0 and row.reads(sent_by_head(position)):
        at = "head"
        if row.up == TO_SERVERS:
            words = "its untrusted parent"
        elif row.up == TO_CLOUD and position.parent_is_cloud:
            words = "the cloud, its parent"
    return words, row, at


def _handed_below(premises: Premises, position: Position, row: Kind) -> At:
    """Where an observer below a server that is the head reads first. A local aggregation carries no
    noise of the head. Siblings otherwise read the head's message, unless chance decides who joins.
    """
    lowest = max(position.head_layer, 1)
    tops = [top for top in premises.tops if top is not None and top >= lowest]
    if any(row.handed == EVERY or position.has_cousins(top) for top in tops):
        return "local"
    return "further" if row.handed == BETWEEN or position.joins is not None else "head"
