"""Who reads what: one table, a row a kind of observer.

Four things define an observer: the messages on a record's path that it reads, its broadcasts,
whose noise it knows, and whether it is told who takes part. The one rule of
`m2fdp.core.privacy.releases` says the rest. The ledger asks by position (`readings`), attacks by
node and moment. A new kind is a row of `KINDS`, its name among the `kinds` of `readings`, and a
value of `ThreatConfig.distrusted` if a user may name it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal

from m2fdp.core.config import ThreatConfig
from m2fdp.core.privacy.premises import Premises, Route
from m2fdp.core.topology.network import Network, SecureSums

Form = Literal["alone", "sum", "words"]
At = Literal["head", "further", "words", "below", "local"]


@dataclass(frozen=True)
class Message:
    """What a node sends up.

    Attributes:
        to_cloud: whether the cloud reads it; else the sender's parent does.
        trusted: whether this reader is trusted.
        form: read alone, as a term of a sum, or as masked words, which nobody on the way reads.
    """

    to_cloud: bool
    trusted: bool
    form: Form


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


def sent_by_head(route: Route) -> Message:
    """What the head sends. A message that a trusted parent forwards counts as read by it."""
    to_cloud = route.parent_is_cloud or route.cloud_reads
    return Message(to_cloud, route.parent_is_trusted, "sum" if route.summed else "alone")


NOTHING = "–"
SOME = "so many as are declared"
# Messages that an observer reads on their way up, in words.
TO_SERVERS = "what is sent to untrusted servers"
TO_CLOUD = "what is sent to the cloud"
TO_ITS_READER = "what untrusted ground reads first"
TO_TRUSTED = "what is sent to trusted servers"
ON_LINKS = "every message that is not masked"
IN_OFFICE = "what the lowest server reads, when it serves"

READS: dict[str, Callable[[Message], bool]] = {
    TO_SERVERS: lambda m: not (m.to_cloud or m.trusted or m.form == "words"),
    TO_CLOUD: lambda m: m.to_cloud and not m.trusted,
    TO_ITS_READER: lambda m: not m.trusted and m.form != "words",
    TO_TRUSTED: lambda m: m.trusted and m.form != "words",
    ON_LINKS: lambda m: m.form == "alone",
    **dict.fromkeys((IN_OFFICE, SOME, NOTHING), lambda m: False),
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
ELECTED = "a device of the same server, and the server in its rounds"
NOBODY = "–"


@dataclass(frozen=True)
class Kind:
    """A kind of observers: a row of the table.

    Attributes:
        words: its name, in words.
        up: the messages on their way up that it reads.
        handed: which broadcasts it is handed.
        drew: whose noise it knows.
        told: whether it is told which devices join a round by chance.
        stood_for_by: kinds with lines that hold for it where it has none.
        off_duty: if it serves by turns, the kind that it is in other rounds.
    """

    words: str
    up: str
    handed: str
    drew: str
    told: bool
    stood_for_by: tuple[str, ...] = ()
    off_duty: str = ""

    def reads(self, message: Message) -> bool:
        """Whether it makes sense of a message, alone or in a sum."""
        return READS[self.up](message)

    @property
    def is_device(self) -> bool:
        """Whether it is a device, or devices together."""
        return self.drew in (BESIDE, BELOW, ELSEWHERE, ELECTED)

    @property
    def reads_local_broadcasts(self) -> bool:
        """Whether it first reads what servers hand down after local aggregations."""
        return self.up == NOTHING and self.handed in (EVERY, BETWEEN)

    @property
    def unknown_from(self) -> int | None:
        """The highest layer with noise on a record's path that it neither draws nor reads below;
        None = there is none above the head."""
        return {TO_CLOUD: 1, NOTHING: 0}.get(self.up)


# By the name under which `threat` distrusts it.
KINDS = {
    "servers": Kind("untrusted servers", TO_SERVERS, GLOBAL, SERVERS, told=False),
    "cloud": Kind("the cloud", TO_CLOUD, NOTHING, CLOUD, told=False),
    "siblings": Kind("devices of the same server", NOTHING, EVERY, BESIDE, told=True),
    "cousins": Kind(
        "devices of other servers below the same head", NOTHING, BETWEEN, BELOW, told=False
    ),
    "far_devices": Kind(
        "devices elsewhere", NOTHING, GLOBAL, ELSEWHERE, False, stood_for_by=("cousins", "siblings")
    ),
    "public": Kind("anyone with the final model", NOTHING, FINAL, NOBODY, told=False),
    "uplinks": Kind("eavesdropper on uplinks", ON_LINKS, NOTHING, NOBODY, told=True),
    "downlinks": Kind("eavesdropper on downlinks", NOTHING, EVERY, NOBODY, told=True),
    "colluders": Kind(
        "servers and some whose noise protects the record, together",
        TO_ITS_READER,
        NOTHING,
        COLLUDING,
        told=False,
    ),
    "super_nodes": Kind(
        "another device of the zone, when it is elected",
        IN_OFFICE,
        EVERY,
        ELECTED,
        told=True,
        off_duty="siblings",
    ),
    "coalition": Kind("devices of the same server, together", NOTHING, EVERY, COLLUDING, told=True),
    "uplinks_caught": Kind("who catches some uplinks", SOME, NOTHING, NOBODY, told=True),
    "downlinks_caught": Kind("who catches some downlinks", NOTHING, SOME, NOBODY, told=True),
    "trusted_servers": Kind("the trusted servers above", TO_TRUSTED, GLOBAL, SERVERS, told=True),
}
# Whom `threat` may distrust, in words.
OBSERVERS = {name: kind.words for name, kind in KINDS.items() if kind.up != TO_TRUSTED}
# Observers that only broadcasts reach: a trusted cloud's noise protects from them.
BEYOND_THE_CLOUD = frozenset(
    kind
    for kind, row in KINDS.items()
    if row.up == NOTHING and (row.is_device or row.handed == FINAL)
)
# Kinds that are asked for by name.
PUBLIC, FAR_DEVICES, AT_CLOUD = "public", "far_devices", "cloud"
LINKS = frozenset({"uplinks", "downlinks"})
UPLINKS_CAUGHT, DOWNLINKS_CAUGHT, COALITION = "uplinks_caught", "downlinks_caught", "coalition"


def observers(colluding: bool, elected: bool) -> list[str]:
    """The kinds of observers that there may be."""
    exists = {"colluders": colluding, "super_nodes": elected}
    exists |= dict.fromkeys((UPLINKS_CAUGHT, DOWNLINKS_CAUGHT, COALITION), False)
    return [kind for kind in OBSERVERS if exists.get(kind, True)]


def distrusted_kinds(threat: ThreatConfig, elected: bool = False) -> frozenset[str]:
    """The kinds of observers that a threat model distrusts. Cousins are devices elsewhere too;
    siblings may be elected super-nodes, or pool what they know."""
    implied = {
        "cousins": "far_devices" in threat.distrusted,
        "colluders": threat.colluding > 0,
        "super_nodes": elected and "siblings" in threat.distrusted,
        COALITION: "siblings" in threat.distrusted,
    }
    others = [kind for kind, distrusted in implied.items() if distrusted]
    return frozenset([*threat.distrusted, *threat.open_links, *others])


def receiver(route: Route) -> str:
    """The kind of observer that the head's message is sent to, as if nobody trusted it."""
    if route.cloud_reads or route.parent_is_cloud:
        return AT_CLOUD
    return "servers" if route.head_layer else PUBLIC


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
    at: At
    exists: bool = True

    @property
    def row(self) -> Kind:
        """Of the table."""
        return KINDS[self.kind]


def readings(premises: Premises, route: Route) -> tuple[Reading, ...]:
    """All who may read something of a position's records: above its head, beyond it, and below."""
    traffic, device = premises.traffic, route.is_device
    upwards = ["servers", "cloud"]
    if route.parent_is_trusted or route.parent_is_cloud:
        upwards = ["cloud", "servers"]
    if device and route.parent_is_trusted:
        upwards = ["trusted_servers", *upwards]
    downwards = ["siblings", "downlinks", "cousins", "uplinks", "trusted_servers"]
    if device:
        upwards += ["trusted_servers"] * (traffic.cloud_is_trusted and not route.parent_is_trusted)
        downwards = ["siblings", "uplinks", "downlinks"]
    kinds = [*upwards, "far_devices", "colluders", "public", *downwards, "super_nodes"]
    nobody = {
        "servers": traffic.cloud_is_trusted and not traffic.untrusted_servers,
        "cloud": traffic.cloud_is_trusted,
        "trusted_servers": device and route.parent_is_trusted and route.cloud_reads,
        "far_devices": route.head_layer == 0,  # all devices are below it
        "cousins": not route.has_cousins(route.head_layer),
        "colluders": not traffic.colluding,
        "super_nodes": not traffic.elected,
    }
    siblings = not device or route.has_siblings
    exists = {
        "servers": traffic.untrusted_servers,
        "siblings": siblings,
        "super_nodes": siblings,
        "far_devices": not (device and route.parent_is_cloud),  # in a star all are siblings
    }
    return tuple(
        Reading(kind, *_place(premises, route, kind), exists.get(kind, True))
        for kind in kinds
        if not nobody.get(kind, False)
    )


def _place(premises: Premises, route: Route, kind: str) -> tuple[str, At]:
    """Who an observer is, in words, and where it reads."""
    row = KINDS[kind]
    if row.up == ON_LINKS and route.is_device:
        return row.words, "words" if route.masked_up else "head"
    if row.up == ON_LINKS or (row.up == TO_TRUSTED and not route.is_device):
        return row.words, "below"
    if row.up == TO_TRUSTED:
        if route.parent_is_trusted:
            return "its trusted parent", "head"
        return "the trusted cloud", "further"
    if row.handed in (EVERY, BETWEEN) and not route.is_device:
        return row.words, _handed_below(premises, route, row)
    if route.head_layer > 0 and row.reads(sent_by_head(route)):
        who = {TO_SERVERS: "its untrusted parent", TO_CLOUD: "the cloud, its parent"}
        parents = row.up == TO_SERVERS or (row.up == TO_CLOUD and route.parent_is_cloud)
        return who[row.up] if parents else row.words, "head"
    return row.words, "further"


def _handed_below(premises: Premises, route: Route, row: Kind) -> At:
    """Where an observer below a server that is the head reads first. A local aggregation carries no
    noise of the head. Siblings otherwise read the head's message, unless chance decides who joins.
    """
    tops = [top for top in premises.traffic.layers if top >= max(route.head_layer, 1)]
    if any(row.handed == EVERY or route.has_cousins(top) for top in tops):
        return "local"
    return "further" if row.handed == BETWEEN or route.joins is not None else "head"


def lines_of(kind: str, present: Collection[str]) -> list[str]:
    """Of the kinds that have lines, an observer's own, or the first that stands for it."""
    return [name for name in (kind, *KINDS[kind].stood_for_by) if name in present][:1]
