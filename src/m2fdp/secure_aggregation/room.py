"""What the room of secure aggregation brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    blocks={"secure_aggregation": "m2fdp.secure_aggregation.config:SecureAggregationConfig"},
    planned=("m2fdp.secure_aggregation.facts:with_secure_sums",),
    sent=("m2fdp.secure_aggregation.model_sums:with_overhead",),
    facts=("m2fdp.secure_aggregation.facts:FACTS",),
    features=("m2fdp.secure_aggregation.facts:FEATURES",),
    surprises=("m2fdp.secure_aggregation.facts:surprises",),
    promised=("m2fdp.secure_aggregation.rounds:promised",),
    warned=("m2fdp.secure_aggregation.rounds:lost_sums",),
    rounds=(
        "m2fdp.secure_aggregation.rounds:steps_in_sums",
        "m2fdp.secure_aggregation.rounds:sums_that_lose",
    ),
)
