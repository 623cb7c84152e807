"""What the room of audits and attacks brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={
        "audit": "m2fdp.adversaries.config:AuditConfig",
        "attack": "m2fdp.adversaries.config:AttackConfig",
    },
    verb_features=("m2fdp.adversaries.facts:PLANNED_ROUNDS", "m2fdp.adversaries.facts:ATTACK"),
)
