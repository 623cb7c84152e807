"""What the room of the controller brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    facts=("m2fdp.control.facts:FACTS",),
    features=("m2fdp.control.facts:FEATURES",),
    surprises=("m2fdp.control.facts:surprises",),
)
