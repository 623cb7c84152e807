"""What the room of the controller brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"control": "m2fdp.control.config:ControlConfig"},
    decides=("m2fdp.control.config:decided_by",),
)
