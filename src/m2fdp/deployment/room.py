"""What the room of real nodes brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    verb_features=("m2fdp.deployment.needs:DEPLOYED",),
)
