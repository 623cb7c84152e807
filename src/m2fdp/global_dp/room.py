"""What the room of global DP brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    algorithms={"global_dp": "m2fdp.global_dp.algorithm:GLOBAL_DP"},
    mechanisms={"weights": "m2fdp.global_dp.weights:WEIGHTS"},
    blocks={"privacy": "m2fdp.global_dp.config:PaperPrivacy"},
    warned=("m2fdp.global_dp.warned:drowned",),
)
