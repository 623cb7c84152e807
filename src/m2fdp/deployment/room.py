"""What the room of real nodes brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"deployment": "m2fdp.deployment.config:DeploymentConfig"},
    readers=("m2fdp.deployment.config:READERS",),
    verb_features=("m2fdp.deployment.facts:DEPLOYED",),
)
