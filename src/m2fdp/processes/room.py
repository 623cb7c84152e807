"""What the room of many processes brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(blocks={"execution": "m2fdp.processes.config:ExecutionConfig"})
