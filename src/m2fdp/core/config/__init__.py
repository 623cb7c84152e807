"""The configuration of one run: every key a user may set, its type, range, default and meaning.

`Config` is the root; each block is also the type of the Kedro parameter of that name. `Config()` is
what conf/base says. Keys read like the papers' (J Sec. II-VI). Unknown keys are errors.
docs/configuration.md and the comments in conf/base are made from the texts here, by
`python -m m2fdp.core.config.reference`.
"""

from m2fdp.core.config.costs import ControlConfig, ResourcesConfig
from m2fdp.core.config.data import (
    DATASETS,
    PIXELS,
    SCHEMES,
    DatasetConfig,
    FeaturesConfig,
    ModelConfig,
    PartitionConfig,
)
from m2fdp.core.config.execution import DeploymentConfig, ExecutionConfig
from m2fdp.core.config.loading import load_config, overlaid
from m2fdp.core.config.network import (
    SecureAggregationConfig,
    SuperNodesConfig,
    TopologyConfig,
    TrustConfig,
    ZonesConfig,
)
from m2fdp.core.config.parsing import parse_block, parse_config
from m2fdp.core.config.privacy import (
    AttackConfig,
    AuditConfig,
    ExposuresConfig,
    PrivacyConfig,
    ThreatConfig,
)
from m2fdp.core.config.root import (
    INCIDENTAL,
    UNRELEASED,
    Config,
    completed,
    essentials,
    flatten,
    later_defaults,
    less_later,
    own_names,
    recorded,
    released,
)
from m2fdp.core.config.tiers import TRAINED, ClockConfig, LeakageConfig, TieringConfig
from m2fdp.core.config.training import PlateauConfig, ServerConfig, TrainingConfig
from m2fdp.core.config.types import (
    SINCE,
    Alternatives,
    Block,
    Count,
    Decay,
    Decibel,
    NonNegative,
    Positive,
    Probability,
)

__all__ = [
    "DATASETS",
    "PIXELS",
    "INCIDENTAL",
    "SCHEMES",
    "SINCE",
    "TRAINED",
    "UNRELEASED",
    "Alternatives",
    "AttackConfig",
    "AuditConfig",
    "Block",
    "ClockConfig",
    "Config",
    "ControlConfig",
    "Count",
    "DatasetConfig",
    "DeploymentConfig",
    "Decay",
    "Decibel",
    "ExecutionConfig",
    "ExposuresConfig",
    "FeaturesConfig",
    "LeakageConfig",
    "ModelConfig",
    "NonNegative",
    "PartitionConfig",
    "PlateauConfig",
    "Positive",
    "PrivacyConfig",
    "Probability",
    "ResourcesConfig",
    "SecureAggregationConfig",
    "ServerConfig",
    "SuperNodesConfig",
    "ThreatConfig",
    "TieringConfig",
    "TopologyConfig",
    "TrainingConfig",
    "TrustConfig",
    "ZonesConfig",
    "completed",
    "essentials",
    "flatten",
    "later_defaults",
    "less_later",
    "load_config",
    "overlaid",
    "own_names",
    "parse_block",
    "parse_config",
    "released",
    "recorded",
]
