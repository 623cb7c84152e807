"""D's tables from the clock, against the numbers that they imply."""

import numpy as np
import pytest
from tests.tiers.clocks import clock

from m2fdp.extend import ClockConfig, Config, TieringConfig
from tools import clock_figures
from tools import clock_tables as tables

# Rounds to 80 %: D's seconds of communication over ours of a round.
IMPLIED = {
    1: [141.8, 143.8, 104.7, 104.7, 96.0, 84.7, 108],
    2: [142.0, 144.7, 107.3, 107.8, 92.4, 82.5, 97],
}


@pytest.fixture(scope="module")
def table_1():
    return tables.table_1(Config())


def test_table_1_at_mebibytes_implies_one_number_of_rounds_in_both_cases(table_1):
    at_mebibytes = table_1[table_1["rate_unit"] == "mebibyte"]
    by_case = {
        case: rows["rounds_by_communication"].to_numpy()
        for case, rows in at_mebibytes.groupby("case")
    }
    for case, implied in IMPLIED.items():
        np.testing.assert_allclose(by_case[case], implied, atol=0.5)
    np.testing.assert_allclose(by_case[1][:6], by_case[2][:6], rtol=0.041)


def test_table_1_at_megabits_would_be_over_in_17_rounds(table_1):
    rows = table_1[(table_1["rate_unit"] == "megabit") & (table_1["tier"] == 1)]
    assert rows["rounds_by_communication"].round().tolist() == [17, 17]


def test_table_1s_compute_speed_is_the_clocks(table_1):
    """FedAvg's computation over about 100 rounds: the defaults of the clock come from it."""
    fedavg = table_1[(table_1["tier"] == 0) & (table_1["rate_unit"] == "mebibyte")]
    assert fedavg["rounds_by_computation"].between(97, 108).all()
    assert fedavg["printed_total_s"].tolist() == [13_412, 24_471]


def test_table_2_by_flops():
    table = tables.table_2(Config())
    expected = [1, 1.96, 3.14, 4.10, 5.28, 6.25]
    np.testing.assert_allclose(table["client"], expected, atol=0.02)
    assert table["server"].is_monotonic_decreasing
    assert (table["client"] - table["printed_client"]).is_monotonic_increasing


def test_table_4_of_times_that_are_known():
    table = tables.table_4(Config(clock=clock()))
    np.testing.assert_allclose(table["oracle_over_fedavg"], [0.227, 0.191, 0.179, 0.173], atol=6e-3)
    printed = [0.236, 0.244, 0.221, 0.224]
    np.testing.assert_allclose(
        table["printed_fedgkt_over_fedavg"], [1.84, 1.71, 1.74, 1.72], atol=5e-3
    )
    np.testing.assert_allclose(table["printed_dtfl_over_fedavg"], printed, atol=5e-4)
    assert (table["dtfl_s"] >= table["oracle_s"]).all()


def test_table_11_leaves_no_module_out():
    table = tables.table_11(Config(clock=ClockConfig(model="resnet20")))
    assert len(table) == sum(range(1, 8))
    assert table["tiers"].value_counts().sort_index().tolist() == list(range(1, 8))
    one, seven = (table[table["tiers"] == n] for n in (1, 7))
    assert one[["client", "server"]].to_numpy().tolist() == [["md1-md7", "md8"]]
    assert seven["client"].tolist() == ["md1", *(f"md1-md{m}" for m in range(2, 8))]
    assert seven["server"].tolist() == [*(f"md{m}-md8" for m in range(2, 8)), "md8"]


def test_figure_3_falls_with_every_tier_if_times_are_known():
    table = tables.figure_3(Config())
    for case, last in ((1, 24.7), (2, 45.6)):
        rows = table[table["case"] == case]
        assert rows["tiers"].tolist() == list(range(1, 8))
        assert (np.diff(rows["oracle_s"]) <= 0).all()
        assert (rows["dtfl_s"] <= 1.15 * rows["oracle_s"]).all()
        assert rows["oracle_s"].iloc[-1] == pytest.approx(last, abs=0.1)


def test_both_readings_of_the_rates():
    table = tables.units_table(
        Config(clock=ClockConfig(model="resnet20", noise=0.3, server="shared"))
    )
    ratio = table.set_index(["model", "rate_unit", "algorithm"])["over_fedavg"]
    assert ratio["resnet56", "mebibyte", "dtfl"] == pytest.approx(0.301, abs=5e-4)
    assert ratio["resnet110", "mebibyte", "dtfl"] == pytest.approx(0.185, abs=5e-4)
    assert ratio["resnet56", "megabit", "dtfl"] == pytest.approx(2.04, abs=0.01)
    assert ratio["resnet110", "megabit", "dtfl"] == pytest.approx(1.09, abs=0.01)
    assert ratio["resnet56", "mebibyte", "dtfl, shared server"] == pytest.approx(0.475, abs=5e-4)
    assert ratio["resnet110", "mebibyte", "dtfl, shared server"] == pytest.approx(0.358, abs=5e-4)
    assert ratio.xs("megabit", level=1)[:, "dtfl, whole_model"].tolist() == [1.0, 1.0]


def test_fedgkts_seconds_imply_one_number_of_rounds_for_both_models():
    """And FedAvg's, but for 4 %: the formula that leads to them is D's."""
    table = tables.units_table(Config())
    rows = table[table["rate_unit"] == "mebibyte"].set_index(["model", "algorithm"])
    implied = rows["implied_rounds"].unstack("model")
    np.testing.assert_allclose(implied.loc["fedgkt"], [205.5, 204.8], atol=0.1)
    np.testing.assert_allclose(implied.loc["fedavg"], [99.1, 102.4], atol=0.1)
    np.testing.assert_allclose(implied.loc["splitfed"], [222.6, 129.6], atol=0.1)
    np.testing.assert_allclose(implied.loc["dtfl"], [105.7, 71.1], atol=0.1)


SMALL = Config(
    clock=ClockConfig(model="resnet20", noise=0.0, switch_every=None),
    tiering=TieringConfig(tiers=3),
)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("table1", "resnet110"),
        ("table2", "resnet56"),
        ("table4", "resnet110"),
        ("table11", "resnet20"),
        ("fig3", "resnet110"),
    ],
)
def test_a_figure_says_whose_times_it_shows(name, model):
    make, draw = clock_figures.DRAWN[name]
    assert f"(times of {model})" in draw(make(SMALL)).get_suptitle()


def test_bars_of_both_units_are_the_tables():
    table = tables.units_table(SMALL)
    figure = clock_figures.both_units(table)
    for axes, model in zip(figure.axes, ("resnet56", "resnet110"), strict=True):
        assert axes.get_title(loc="left") == f"times of {model}"
        heights = [bar.get_height() for container in axes.containers for bar in container]
        assert heights == table[table["model"] == model]["over_fedavg"].tolist()


def test_the_command_writes_every_table_and_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROUNDS", 4)
    monkeypatch.setattr("sys.argv", ["clock_tables", str(tmp_path), "--params", "seed=1"])
    tables.main()
    files = {f"clock_{name}.{kind}" for name in clock_figures.DRAWN for kind in ("csv", "png")}
    assert {file.name for file in tmp_path.iterdir()} == files
