"""What the room of tiers brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    algorithms={
        "fedavg": "m2fdp.tiers.algorithms.fedavg:FEDAVG",
        "splitfed": "m2fdp.tiers.algorithms.splitfed:SPLITFED",
        "fedyogi": "m2fdp.tiers.algorithms.fedyogi:FEDYOGI",
        "dtfl": "m2fdp.tiers.algorithms.dtfl:DTFL",
        "m2fdp_tiers": "m2fdp.tiers.algorithms.m2fdp_tiers:M2FDP_TIERS",
        "fedgkt": "m2fdp.tiers.algorithms.fedgkt:FEDGKT",
    },
    blocks={
        "tiering": "m2fdp.tiers.config:TieringConfig",
        "clock": "m2fdp.tiers.config:ClockConfig",
        "leakage": "m2fdp.tiers.config:LeakageConfig",
    },
    readers=("m2fdp.tiers.config:READERS",),
)
