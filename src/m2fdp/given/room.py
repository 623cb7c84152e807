"""What the room of given records brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    given={
        "dataset": "m2fdp.given.records:checked",
        "module": "m2fdp.given.modules:check_one_by_one",
        "topology.edges": "m2fdp.given.edges:read_edges",
        "manifest": "m2fdp.given.splits:check_manifest",
    },
    splits=("m2fdp.given.splits:repeated_records",),
)
