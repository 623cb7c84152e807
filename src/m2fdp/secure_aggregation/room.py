"""What the room of secure aggregation brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    planned=("m2fdp.secure_aggregation.shared_noise:with_secure_sums",),
    facts=("m2fdp.secure_aggregation.facts:FACTS",),
    features=("m2fdp.secure_aggregation.facts:FEATURES",),
    surprises=("m2fdp.secure_aggregation.facts:surprises",),
    promised=("m2fdp.secure_aggregation.promised:promised",),
    warned=("m2fdp.secure_aggregation.promised:lost_sums",),
)
