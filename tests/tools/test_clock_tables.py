"""D's printed tables: each is written, and its figure says whose times it shows."""

from __future__ import annotations

from tools.clock_tables import TABLES, write_tables

from m2fdp.core.config import ClockConfig, Config, TieringConfig

CLOCK = ClockConfig(model="resnet20", width=4, rounds=6, noise=0.0, switch_every=None)
CONFIG = Config(clock=CLOCK, tiering=TieringConfig(tiers=3))
MODELS = dict(
    zip(TABLES, ("resnet110", "resnet56", "resnet110", "resnet20", "resnet110"), strict=True)
)


def test_each_table_and_its_figure_say_whose_times_they_show(tmp_path):
    write_tables(tmp_path, CONFIG)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in TABLES for kind in ("csv", "png")
    }
    for name, (tabulate, draw) in TABLES.items():
        assert f"(times of {MODELS[name]})" in draw(tabulate(CONFIG)).get_suptitle()
