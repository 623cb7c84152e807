"""Measures of runs by hand-computed values."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m2fdp.claims.measures import MEASURES, check_measure, tracked
from m2fdp.claims.measuring import measure_runs
from m2fdp.core.errors import InputError


def runs_of(n: int = 1, **columns: object) -> pd.DataFrame:
    index = pd.Index([f"run{number}" for number in range(n)], name="run_id")
    return pd.DataFrame({"algorithm": "m2fdp", "seed": range(n), **columns}, index=index)


def history_of(accuracies, run_id="run0", every=10) -> pd.DataFrame:
    rounds = every * np.arange(1, len(accuracies) + 1)
    return pd.DataFrame(
        {
            "run_id": run_id,
            "round": rounds,
            "accuracy": accuracies,
            "energy_j": 2.0 * rounds,
            "delay_s": 3.0 * rounds,
        }
    )


def decisions_of(run_id: str, *rows: tuple[int, int, int]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["local_steps", "s_trusted", "s_untrusted"])
    return frame.assign(run_id=run_id, round=range(1, len(rows) + 1))


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        # Of rounds 10 … 60 those after 30; their differences 0.2, -0.1: mean 0.05, std 0.15 √2.
        ([0.9, 0.1, 0.9, 0.5, 0.7, 0.6], 0.15 * math.sqrt(2)),
        # Two evaluations, or one, are no three late ones.
        ([0.1], math.nan),
        ([0.1, 0.5, 0.2, 0.4], math.nan),
        ([0.1, 0.5, 0.2, 0.4, 0.3], 0.15 * math.sqrt(2)),
    ],
)
def test_volatility_is_the_std_of_the_steps_in_the_second_half(accuracies, expected):
    (volatility,) = measure_runs(runs_of(), history_of(accuracies))["volatility"]
    assert volatility == pytest.approx(expected, nan_ok=True)


def test_what_the_target_took_is_that_of_the_first_evaluation_that_reaches_it():
    history = pd.concat([history_of([0.5, 0.75, 0.6, 0.9]), history_of([0.5, 0.74], "run1")])
    measured = measure_runs(runs_of(2), history, target_accuracy=0.75)
    names = ["rounds_to_target", "energy_to_target", "delay_to_target"]
    assert measured.loc["run0", names].tolist() == [20, 40, 60]
    assert measured.loc["run1", names].isna().all()
    assert not set(names) & set(measure_runs(runs_of(2), history).columns)


def test_decisions_are_averaged_over_the_rounds_that_the_controller_chose_for():
    decisions = decisions_of("run1", (5, 8, 8), (2, 2, 6), (2, 2, 1))
    history = pd.concat([history_of([0.5], name) for name in ("run0", "run1")])
    measured = measure_runs(runs_of(2), history, decisions)
    names = ["local_steps", "s_trusted", "s_untrusted"]
    assert measured.loc["run1", names].tolist() == [2, 2, 3.5]
    assert measured.loc["run0", names].isna().all()
    unaimed = measure_runs(runs_of(2), history)
    assert unaimed[names].isna().all(axis=None)


def test_devices_are_the_product_of_the_fan_outs():
    runs = runs_of(3, **{"topology.fanouts": ["[10, 5]", "[2, 4, 4, 8]", "[7]"]})
    assert measure_runs(runs, history_of([0.5]))["devices"].tolist() == [50, 256, 7]
    assert measure_runs(runs, history_of([0.5]))["zones"].tolist() == [10, 32, 1]
    assert not {"devices", "zones"} & set(measure_runs(runs_of(), history_of([0.5])).columns)


def test_what_zones_learn_is_that_of_the_runs_that_have_any():
    names = list(tracked(of_rounds=False))
    zones = pd.DataFrame({name: [2.0, math.inf] for name in names}, index=["run2", "run1"])
    history = pd.concat([history_of([0.5], f"run{number}") for number in range(3)])
    measured = measure_runs(runs_of(3), history, known=zones)
    for name in names:
        assert math.isnan(measured.loc["run0", name])
        assert measured[name].tolist()[1:] == [math.inf, 2.0]
    assert measure_runs(runs_of(3), history)[names].isna().all(axis=None)


def test_the_runs_own_columns_and_order_stay():
    runs = runs_of(3, accuracy=[0.1, 0.2, 0.3]).iloc[[2, 0, 1]]
    history = pd.concat([history_of([0.1, 0.2], name) for name in runs.index])
    measured = measure_runs(runs, history, target_accuracy=0.15)
    pd.testing.assert_frame_equal(measured[runs.columns], runs)


@settings(max_examples=20)
@given(st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(order):
    history = pd.concat(
        [history_of([0.1, 0.4, 0.7, 0.5, 0.9, 0.8]), history_of([0.9, 0.1] * 3, "run1")],
        ignore_index=True,
    )
    decisions = pd.concat([decisions_of("run0", *[(1, 2, 3), (3, 3, 5)] * 3)])
    expected = measure_runs(runs_of(2), history, decisions, 0.6)
    shuffled = measure_runs(
        runs_of(2), history.iloc[list(order)], decisions.iloc[[i for i in order if i < 6]], 0.6
    )
    pd.testing.assert_frame_equal(shuffled, expected, check_exact=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acuracy", "unknown; valid are accuracy, loss, volatility"),
        ("energy_to_target", "target_accuracy"),
        ("devices", "topology.fanouts"),
        ("zones", "topology.fanouts"),
    ],
)
def test_measures_that_runs_cannot_have_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        check_measure(name, ["arm"], None)


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_can_be_had(name):
    check_measure(name, ["topology.fanouts"], 0.75)
    runs = runs_of(1, accuracy=0.5, loss=1.0, **{"topology.fanouts": "[2, 3]"})
    assert name in measure_runs(runs, history_of([0.5]), target_accuracy=0.75)
