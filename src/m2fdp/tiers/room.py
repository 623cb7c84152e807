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
        "training": "m2fdp.tiers.config:TierTraining",
        "privacy": "m2fdp.tiers.config:SplitPrivacy",
        "tiering": "m2fdp.tiers.config:TieringConfig",
        "clock": "m2fdp.tiers.config:ClockConfig",
        "leakage": "m2fdp.tiers.config:LeakageConfig",
    },
    readers=("m2fdp.tiers.config:READERS",),
    lines=("m2fdp.tiers.split_noise:lines_of_split",),
    ledgers=("m2fdp.tiers.ways:seen_in_clear",),
    noises=("m2fdp.tiers.split_noise:with_client_noise",),
    promised=("m2fdp.tiers.promised:promised",),
    facts=("m2fdp.tiers.facts:FACTS",),
    features=("m2fdp.tiers.facts:FEATURES",),
    surprises=("m2fdp.tiers.facts:surprises",),
    rounds=("m2fdp.tiers.split_rounds:in_splits",),
)
