"""What the room of tiers brings to the core."""

from m2fdp.core.rooms import Room

ROOM = Room(
    algorithms={
        "fedavg": "m2fdp.tiers.algorithms:FEDAVG",
        "splitfed": "m2fdp.tiers.algorithms:SPLITFED",
        "fedyogi": "m2fdp.tiers.algorithms:FEDYOGI",
        "dtfl": "m2fdp.tiers.algorithms:DTFL",
        "m2fdp_tiers": "m2fdp.tiers.algorithms:M2FDP_TIERS",
        "fedgkt": "m2fdp.tiers.algorithms:FEDGKT",
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
    promised=("m2fdp.tiers.split_noise:promised",),
    facts=("m2fdp.tiers.facts:FACTS",),
    features=("m2fdp.tiers.facts:FEATURES",),
    surprises=("m2fdp.tiers.facts:surprises",),
    rounds=("m2fdp.tiers.split_steps:in_splits",),
)
