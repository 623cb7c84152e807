"""What the room of secure aggregation brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"secure_aggregation": "m2fdp.secure_aggregation.config:SecureAggregationConfig"},
    planned=("m2fdp.secure_aggregation.shared_noise:with_secure_sums",),
    sent=("m2fdp.secure_aggregation.traffic:with_overhead",),
)
