"""What the room of adversaries brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={
        "audit": "m2fdp.adversaries.config:AuditConfig",
        "attack": "m2fdp.adversaries.config:AttackConfig",
    }
)
