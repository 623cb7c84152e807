"""What the room of own code brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    own={
        "model.name": "m2fdp.own.models:imported",
        "model.loss": "m2fdp.own.models:with_own_loss",
        "partition.scheme": "m2fdp.own.records:by_own_code",
        "dataset.name": "m2fdp.own.records:make_own",
    },
    given={
        "metrics": "m2fdp.own.metrics:own_metrics",
        "metrics.values": "m2fdp.own.metrics:own_values",
        "metrics.trial": "m2fdp.own.metrics:try_out",
        "block": "m2fdp.own.records:takes_block",
        "local rule": "m2fdp.own.rules:own_rule",
        "clip factor": "m2fdp.own.rules:own_factor",
        "rules": "m2fdp.own.rules:checked_rules",
        "local step": "m2fdp.own.rules:try_local_rule",
    },
    own_parts=("m2fdp.own.parts:own_parts",),
)
