"""What the room of chance brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    facts=("m2fdp.chance.facts:FACTS",),
    features=("m2fdp.chance.facts:FEATURES",),
    rounds=("m2fdp.chance.updates:by_chance",),
    lines=("m2fdp.chance.joining:by_chance",),
    ledgers=("m2fdp.chance.joining:as_drawn",),
)
