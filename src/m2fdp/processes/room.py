"""What the room of processes brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"execution": "m2fdp.processes.config:ExecutionConfig"},
    features=("m2fdp.processes.facts:FEATURES",),
    executed=("m2fdp.processes.blocks:shared",),
)
