"""What the room of global DP brings to the core."""

from m2fdp.core.rooms import Room

COALITION, UPLINKS_CAUGHT, DOWNLINKS_CAUGHT = "coalition", "uplinks_caught", "downlinks_caught"
ROOM = Room(
    algorithms={"global_dp": "m2fdp.global_dp.weights:GLOBAL_DP"},
    mechanisms={"weights": "m2fdp.global_dp.weights:WEIGHTS"},
    observers={
        COALITION: "m2fdp.global_dp.releases:TOGETHER",
        UPLINKS_CAUGHT: "m2fdp.global_dp.releases:ON_UPLINKS",
        DOWNLINKS_CAUGHT: "m2fdp.global_dp.releases:ON_DOWNLINKS",
    },
    blocks={"privacy": "m2fdp.global_dp.config:PaperPrivacy"},
    warned=("m2fdp.global_dp.weights:drowned",),
)
