"""The figure and the line of a plan by the clock show its numbers, and say whose times they are."""

from tests.reporting.printing import printed, words

from m2fdp.extend import ClockConfig, Config, TieringConfig
from m2fdp.reporting.room_figures import print_clock, tiers_over_rounds
from m2fdp.tiers.plan import draw_world, plan_tiers, rounds_table

CLOCK = ClockConfig(model="resnet20", noise=0.0, switch_every=None)
CONFIG = Config(clock=CLOCK, tiering=TieringConfig(tiers=3))


def test_the_figure_and_the_line_are_the_plans():
    table = rounds_table(plan_tiers(CONFIG.tiering, CLOCK, draw_world(CLOCK, 0, 6, 10)), CONFIG)
    figure = tiers_over_rounds(table)
    assert "(times of resnet20)" in figure.get_suptitle()
    times, tiers = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in times.get_lines()}
    assert drawn["DTFL"] == table["dtfl_s"].tolist()
    assert drawn["FedAvg"] == table["fedavg_s"].tolist()
    last = [container[-1].get_height() for container in tiers.containers]
    assert last == table.iloc[-1][["tier_1", "tier_2", "tier_3"]].tolist()
    said = words(printed(print_clock, table, width=120))
    assert f"on average {table['dtfl_s'].mean():.1f} s" in said
    assert "6 rounds planned, times of resnet20" in said
