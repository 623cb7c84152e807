"""What the room of costs brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(blocks={"resources": "m2fdp.costs.config:ResourcesConfig"})
