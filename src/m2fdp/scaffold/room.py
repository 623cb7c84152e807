"""What the room of SCAFFOLD brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    algorithms={"scaffold": "m2fdp.scaffold.algorithm:SCAFFOLD"},
    features=("m2fdp.scaffold.algorithm:FEATURES",),
    rounds=("m2fdp.scaffold.slots:with_slots",),
)
