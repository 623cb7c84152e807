"""What the room of features brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"features": "m2fdp.features.config:FeaturesConfig"},
    promised=("m2fdp.features.run:promised",),
    facts=("m2fdp.features.facts:FACTS",),
)
