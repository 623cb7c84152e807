"""What the room of secure aggregation brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    planned=("m2fdp.secure_aggregation.shared_noise:with_secure_sums",),
    rounds=(
        "m2fdp.secure_aggregation.rounds:steps_in_sums",
        "m2fdp.secure_aggregation.rounds:sums_that_lose",
    ),
)
