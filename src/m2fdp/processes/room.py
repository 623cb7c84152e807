"""What the room of processes brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(executed=("m2fdp.processes.blocks:shared",))
