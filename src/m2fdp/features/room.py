"""What the room of features brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    promised=("m2fdp.features.promised:promised",),
    facts=("m2fdp.features.facts:FACTS",),
)
