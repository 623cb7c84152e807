"""The clock's times by profile and tier, and the rounds of a plan.

Every table names the model whose times it shows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from m2fdp.core.config import Config
from m2fdp.tiers.clock import clients_of, round_times
from m2fdp.tiers.costs import fedavg_costs, tier_costs
from m2fdp.tiers.module_costs import resnet_costs
from m2fdp.tiers.plan import TierPlan

UNITS = ("mebibyte", "megabit")


def times_table(config: Config, n_clients: int) -> pd.DataFrame:
    """Seconds of a round of each profile in each tier, in both units, without noise.

    Args:
        n_clients: K, who hold equally many records.

    Returns:
        One row a unit, profile and tier; FedAvg's row has its place after them, as tier 0.
    """
    tiering, clock = config.tiering, config.clock
    costs, rows = resnet_costs(clock.depth, clock.width), []
    tiers = tier_costs(costs, tiering.tiers, clock.label_bytes, tiering.whole_model)
    n_profiles = len(clock.profiles)
    for unit in UNITS:
        in_unit = clock.model_copy(update={"rate_unit": unit})
        records = np.full(n_profiles, clock.records / n_clients)
        clients = clients_of(in_unit, records, np.arange(n_profiles))
        split, whole = (
            round_times(each, clients, in_unit) for each in (tiers, fedavg_costs(costs))
        )
        for client, (cpus, rate) in enumerate(clock.profiles):
            for tier in (*range(1, tiers.n_tiers + 1), 0):
                times, at = (split, (client, tier - 1)) if tier else (whole, (client, 0))
                rows.append(
                    {
                        "model": clock.model,
                        "rate_unit": unit,
                        "cpus": cpus,
                        "rate": rate,
                        "tier": tier,
                        "client_s": times.client[at],
                        "server_s": times.server[at],
                        "communication_s": times.communication[at],
                        "round_s": times.parallel()[at],
                    }
                )
    return pd.DataFrame(rows)


def rounds_table(plan: TierPlan, config: Config) -> pd.DataFrame:
    """The configured plan, one row a round: its seconds, the baselines', and clients by tier."""
    tiering, numbers = config.tiering, np.arange(1, len(plan.seconds) + 1)
    table = pd.DataFrame({"round": numbers, "model": config.clock.model, **plan.by_way})
    for tier in range(1, tiering.tiers + tiering.whole_model + 1):
        table[f"tier_{tier}"] = (plan.tiers == tier).sum(axis=1)
    return table
