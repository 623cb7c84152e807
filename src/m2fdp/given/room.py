"""What the room of all that a user gives brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    given={
        "code": "m2fdp.given.own_code:load",
        "guard": "m2fdp.given.own_code:guarded",
        "options": "m2fdp.given.loading:parse_block",
        "list": "m2fdp.given.yaml_files:read_value",
        "dataset": "m2fdp.given.records:checked",
        "module": "m2fdp.given.modules:check_one_by_one",
        "topology.edges": "m2fdp.given.edges:read_tree",
        "partition.table": "m2fdp.given.splits:rows_of_table",
        "manifest": "m2fdp.given.splits:check_manifest",
    },
    retired=("m2fdp.given.retired:RETIRED",),
    splits=("m2fdp.given.splits:repeated_records",),
)
