"""Figures and lines of D's clock: they show the table's numbers and say whose times they are."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from m2fdp.core.config import Config
from m2fdp.reporting import clock_figures
from m2fdp.reporting.tables import print_clock
from m2fdp.tiers import tables
from m2fdp.tiers.config import ClockConfig, TieringConfig
from m2fdp.tiers.plan import draw_world, plan_tiers

CLOCK = ClockConfig(model="resnet20", width=4, rounds=6, noise=0.0, switch_every=None)
CONFIG = Config(clock=CLOCK, tiering=TieringConfig(tiers=3))


def rounds():
    plan = plan_tiers(CONFIG.tiering, CLOCK, draw_world(CLOCK, 0))
    return tables.rounds_table(plan, CONFIG)


@pytest.mark.parametrize(
    ("draw", "table", "model"),
    [
        (clock_figures.tiers_over_rounds, rounds, "resnet20"),
        (clock_figures.one_tier_for_all, lambda: tables.table_1(CONFIG), "resnet110"),
        (clock_figures.normalised_times, lambda: tables.table_2(CONFIG), "resnet56"),
        (clock_figures.rounds_by_clients, lambda: tables.table_4(CONFIG), "resnet110"),
        (clock_figures.splits, lambda: tables.table_11(CONFIG), "resnet20"),
        (clock_figures.rounds_by_tiers, lambda: tables.figure_3(CONFIG), "resnet110"),
    ],
)
def test_a_figure_says_whose_times_it_shows(draw, table, model):
    figure = draw(table())
    assert f"(times of {model})" in figure.get_suptitle()
    figure.savefig(io.BytesIO())


def test_bars_of_both_units_are_the_tables():
    table = tables.units_table(CONFIG)
    figure = clock_figures.both_units(table)
    for axes, model in zip(figure.axes, ("resnet56", "resnet110"), strict=True):
        assert axes.get_title(loc="left") == f"times of {model}"
        heights = [bar.get_height() for container in axes.containers for bar in container]
        rows = table[table["model"] == model]
        assert heights == rows["over_fedavg"].tolist()


def test_lines_over_rounds_are_the_plans():
    table = rounds()
    times, tiers = clock_figures.tiers_over_rounds(table).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in times.get_lines()}
    assert drawn["DTFL"] == table["dtfl_s"].tolist()
    assert drawn["FedAvg"] == table["fedavg_s"].tolist()
    last = [container[-1].get_height() for container in tiers.containers]
    assert last == table.iloc[-1][["tier_1", "tier_2", "tier_3"]].tolist()


def test_the_terminal_has_both_units_and_the_mean_round():
    console = Console(file=io.StringIO(), width=120)
    table = rounds()
    print_clock(tables.units_table(CONFIG), table, console)
    said = console.file.getvalue()
    line = next(line for line in said.splitlines() if "resnet56" in line and " dtfl " in line)
    assert [cell for cell in line.replace("│", " ").split()][2:] == [
        "38.7",
        "0.301",
        "269.6",
        "2.044",
    ]
    assert f"on average {table['dtfl_s'].mean():.1f} s" in said
    assert "6 rounds planned, times of resnet20" in said
