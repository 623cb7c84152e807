"""The configuration of one run: every key a user may set, its type, range, default and meaning.

`Config` is the root; each block is also the type of the parameter of that name. `Config()` is
what conf/base says. Keys read like the papers' (J Sec. II-VI). Unknown keys are errors.
docs/configuration.md and the comments in conf/base are made from the texts in `keys`, by
`python docs/configuration.py`.
"""

from m2fdp.core.config.keys import (
    DATASETS,
    PIXELS,
    SCHEMES,
    DatasetConfig,
    ModelConfig,
    PartitionConfig,
    PrivacyConfig,
    ServerConfig,
    ThreatConfig,
    TopologyConfig,
    TrainingConfig,
    TrustConfig,
)
from m2fdp.core.config.root import (
    Config,
    Key,
    completed,
    essentials,
    flatten,
    keys_of,
    later_defaults,
    less_later,
    marked,
    own_names,
    recorded,
    released,
)

__all__ = ["DATASETS", "PIXELS", "SCHEMES", "Config", "DatasetConfig", "ModelConfig"]
__all__ += ["PartitionConfig", "PrivacyConfig", "ServerConfig", "ThreatConfig"]
__all__ += ["TopologyConfig", "TrainingConfig", "TrustConfig", "completed", "essentials"]
__all__ += ["flatten", "Key", "keys_of", "later_defaults", "less_later", "marked"]
__all__ += ["own_names", "recorded", "released"]
