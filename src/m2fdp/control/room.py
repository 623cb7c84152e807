"""What the room of the controller brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"control": "m2fdp.control.config:ControlConfig"},
    decides=("m2fdp.control.config:decided_by",),
    facts=("m2fdp.control.facts:FACTS",),
    features=("m2fdp.control.facts:FEATURES",),
    surprises=("m2fdp.control.facts:surprises",),
)
