"""What the room of processes brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    features=("m2fdp.processes.facts:FEATURES",),
)
