"""The clock's times, and the rounds of a plan."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tiers.clocks import clock

from m2fdp.core.config import Config
from m2fdp.tiers import tables
from m2fdp.tiers.config import TieringConfig
from m2fdp.tiers.plan import draw_world, plan_tiers


def test_times_by_profile_and_tier():
    table = tables.times_table(Config(tiering=TieringConfig(whole_model=True)), 10)
    assert len(table) == 2 * 5 * 9
    assert table["tier"].iloc[:9].tolist() == [*range(1, 9), 0]
    whole, fedavg = table[table["tier"] == 8], table[table["tier"] == 0]
    columns = ["client_s", "server_s", "communication_s", "round_s"]
    np.testing.assert_array_equal(whole[columns], fedavg[columns])
    slowest = fedavg[(fedavg["rate_unit"] == "mebibyte") & (fedavg["cpus"] == 0.1)]
    assert slowest["round_s"].tolist() == pytest.approx([128.498], rel=1e-4)


def test_rounds_of_a_plan():
    config = Config(tiering=TieringConfig(tiers=3), clock=clock())
    plan = plan_tiers(config.tiering, config.clock, draw_world(config.clock, 0, 4, 10))
    table = tables.rounds_table(plan, config)
    assert table["round"].tolist() == [1, 2, 3, 4]
    counts = table[["tier_1", "tier_2", "tier_3"]]
    assert counts.iloc[0].tolist() == [10, 0, 0] and (counts.sum(axis=1) == 10).all()
    assert table["dtfl_s"].tolist() == plan.seconds.tolist()
