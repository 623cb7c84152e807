"""What the room of zones brings to the core."""

from m2fdp.core.rooms import Room

SUPER_NODES = "super_nodes"
ROOM = Room(
    algorithms={
        "ldp": "m2fdp.zones.algorithm:LDP",
        "hdp": "m2fdp.zones.algorithm:HDP",
        "cdp": "m2fdp.zones.algorithm:CDP",
        "hdp_mixed": "m2fdp.zones.algorithm:HDP_MIXED",
    },
    blocks={
        "topology": "m2fdp.zones.config:ElectedConfig",
        "zones": "m2fdp.zones.config:ZonesConfig",
    },
    observers={SUPER_NODES: "m2fdp.zones.super_nodes:SUPER_NODES"},
    readers=("m2fdp.zones.config:READERS",),
    before_steps=("m2fdp.zones.lots:ballot_bits",),
    planned=("m2fdp.zones.super_nodes:with_elections",),
    facts=("m2fdp.zones.super_nodes:FACTS",),
    features=("m2fdp.zones.super_nodes:FEATURES",),
    ledgers=("m2fdp.zones.offices:with_offices",),
    promised=("m2fdp.zones.offices:promised",),
)
