"""What the room of audits and attacks brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    verb_features=("m2fdp.adversaries.facts:PLANNED_ROUNDS", "m2fdp.adversaries.facts:ATTACK"),
)
