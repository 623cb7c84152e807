"""D's clients as tests want them: two of each profile, 5,000 records each, no noise."""

from typing import Any

import numpy as np

from m2fdp.tiers.clock import (
    Clients,
    RoundTimes,
    clients_of,
    resnet_costs,
    round_times,
    tier_costs,
)
from m2fdp.tiers.config import ClockConfig

RECORDS = np.full(10, 5000.0)
START = np.arange(10) // 2


def clock(**keys: Any) -> ClockConfig:
    """Without noise."""
    return ClockConfig.model_validate({"noise": 0.0} | keys)


def start_clients(config: ClockConfig) -> Clients:
    """Of D's start."""
    return clients_of(config, RECORDS, START)


def start_times(config: ClockConfig, n_tiers: int = 7, whole_model: bool = False) -> RoundTimes:
    """Of D's start, by tier."""
    modules = resnet_costs(config.depth, config.width)
    tiers = tier_costs(modules, n_tiers, whole_model)
    return round_times(tiers, start_clients(config), config)
