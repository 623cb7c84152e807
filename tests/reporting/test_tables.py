"""Tables of runs and ledgers: hand-computed statistics and honest epsilons."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reporting.panel_frames import study
from tests.reporting.printing import cells_of, printed, words

from m2fdp.claims.frames import RUN_COLUMNS
from m2fdp.core.errors import InputError
from m2fdp.reporting.room_figures import print_bound
from m2fdp.reporting.tables import (
    TABLE_COLUMNS,
    comparison_table,
    displayed,
    measure_table,
    measures_to_markdown,
    print_ledger,
    print_result,
    print_table,
    to_markdown,
    worst_positions,
)


def run(algorithm="m2fdp", seed=0, accuracy=0.8, privacy="verified", **other) -> dict:
    nominal = None if privacy == "none" else 4.0
    return {
        "algorithm": algorithm,
        "seed": seed,
        "role": "method" if algorithm == "m2fdp" else "baseline",
        "privacy": privacy,
        "accuracy": accuracy,
        "loss": 1.0 - accuracy,
        "epsilon_nominal": nominal,
        "epsilon_verified": 3.9 if privacy == "verified" else None,
        "energy_j": 100.0 + seed,
        "delay_s": 20.0,
        **other,
    }


def frame(*rows: dict) -> pd.DataFrame:
    swept = [name for name in rows[0] if name not in RUN_COLUMNS]
    return pd.DataFrame(rows, columns=[*RUN_COLUMNS, *swept])


FOUR = frame(
    run("m2fdp", 0, 0.80, epsilon_verified=3.901),
    run("m2fdp", 1, 0.90, epsilon_verified=3.987),
    run("m2fdp", 2, 0.85),
    run("hfl_dp", 0, 0.70, epsilon_verified=25.01),
    run("hfl", 0, 0.95, privacy="none"),
    run("hfl", 1, 0.93, privacy="none"),
    run("pedpfl", 0, 0.60, energy_j=12345.6),
)


def test_statistics_by_hand():
    table = comparison_table(FOUR).set_index("algorithm")
    assert table.loc["m2fdp", "accuracy_mean"] == pytest.approx(0.85)
    assert table.loc["m2fdp", "accuracy_std"] == pytest.approx(0.05)  # ddof = 1
    assert table.loc["m2fdp", "seeds"] == 3
    assert table.loc["m2fdp", "energy_j"] == pytest.approx(101.0)
    assert table.loc["m2fdp", "loss_mean"] == pytest.approx(0.15)
    assert math.isnan(table.loc["pedpfl", "accuracy_std"])


def test_epsilons_are_the_largest_of_the_seeds_and_may_pass_the_nominal_one():
    table = comparison_table(FOUR).set_index("algorithm")
    assert table.loc["m2fdp", "epsilon_verified"] == 3.987
    assert table.loc["hfl_dp", "epsilon_verified"] == 25.01
    assert table.loc["hfl_dp", "epsilon_nominal"] == 4.0
    assert math.isinf(table.loc["hfl", "epsilon_verified"])
    assert math.isinf(table.loc["hfl", "epsilon_nominal"])

    # One seed without a bound leaves the row without one.
    table = comparison_table(frame(run(seed=0), run(seed=1, epsilon_verified=None)))
    assert math.isinf(table["epsilon_verified"].item())
    assert displayed(table)["ε verified"].item() == "∞"


def test_runs_of_different_guarantees_are_never_averaged():
    table = comparison_table(frame(run(seed=0), run(seed=1, privacy="none")))
    assert table["privacy"].tolist() == ["none", "verified"]
    assert table["seeds"].tolist() == [1, 1]

    # A conditional guarantee is never shown as a verified one.
    table = comparison_table(frame(run(privacy="conditional", epsilon_verified=3.9)))
    assert displayed(table)["ε verified"].item() == "3.90 cond."


def test_what_people_read():
    texts = displayed(comparison_table(FOUR))
    assert texts.to_numpy().tolist() == [
        ["HFL (no DP)", "0.940 ± 0.014", "2", "∞", "none", "100", "20"],
        ["PEDPFL", "0.600 (n = 1)", "1", "4", "3.90", "12,346", "20"],
        ["HFL-DP", "0.700 (n = 1)", "1", "4", "25.1", "100", "20"],
        ["M²FDP", "0.850 ± 0.050", "3", "4", "3.99", "101", "20"],
    ]


def test_swept_parameters_make_rows_of_their_own_in_order():
    rows = [
        run(algorithm, seed, **{"privacy.epsilon": epsilon})
        for algorithm in ("m2fdp", "hfl_dp")
        for epsilon in (8.0, 0.5)
        for seed in (0, 1)
    ]
    table = comparison_table(frame(*rows))
    assert list(table.columns) == ["algorithm", "privacy.epsilon", *TABLE_COLUMNS[1:]]
    places = table[["algorithm", "privacy.epsilon"]].to_numpy().tolist()
    assert places == [["hfl_dp", 0.5], ["hfl_dp", 8.0], ["m2fdp", 0.5], ["m2fdp", 8.0]]
    assert displayed(table)["privacy.epsilon"].tolist() == ["0.5", "8", "0.5", "8"]


@given(st.permutations(range(len(FOUR))))
def test_the_order_of_runs_does_not_matter(order):
    assert comparison_table(FOUR.iloc[order]).to_csv() == comparison_table(FOUR).to_csv()


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (frame(run("fedprox")), "fedprox"),
        (FOUR.iloc[:0], "nothing to compare"),
        (frame(run(seed=1), run(seed=1, accuracy=0.7)), "m2fdp, seed 1"),
    ],
)
def test_what_is_no_comparison_is_refused(runs, words):
    with pytest.raises(InputError, match=words):
        comparison_table(runs)


def test_markdown():
    rows = frame(run(**{"topology.trust.ratios": "0.5|1"}))
    assert to_markdown(comparison_table(rows)) == (
        "| algorithm | topology.trust.ratios | accuracy ± std | seeds | ε nominal | ε verified "
        "| energy (J) | delay (s) |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| M²FDP | 0.5\\|1 | 0.800 (n = 1) | 1 | 4 | 3.90 | 100 | 20 |\n"
    )


def test_arms_make_rows_of_their_own():
    rows = [
        run(algorithm, seed, arm=arm)
        for algorithm, arm in (("m2fdp", "svm-p1_1"), ("hfl_dp", "svm"), ("m2fdp", "svm"))
        for seed in (0, 1)
    ]
    table = comparison_table(frame(*rows))
    assert list(table.columns) == ["algorithm", "arm", *TABLE_COLUMNS[1:]]
    assert displayed(table)[["algorithm", "arm", "seeds"]].to_numpy().tolist() == [
        ["HFL-DP", "svm", "2"],
        ["M²FDP", "svm", "2"],
        ["M²FDP", "svm-p1_1", "2"],
    ]


@pytest.mark.parametrize("width", [80, 100])
def test_a_table_with_arms_is_whole_and_fits_in_a_hundred_columns(width):
    rows = [
        run("hfl", seed, privacy="none", arm="softmax", energy_j=12345.6, delay_s=9876.5)
        for seed in (0, 1)
    ]
    rows += [run("m2fdp", arm="softmax-p1_0.5", energy_j=12345.6)]
    lines = printed(print_table, comparison_table(frame(*rows)), "Arms", width=width)
    assert max(map(len, lines)) <= 100
    (first,) = [row for row in cells_of(lines) if row[0] == "HFL (no DP)"]
    assert first == ["HFL (no DP)", "softmax", "0.800 ± 0.000", "2", "∞", "none", "12,346", "9,876"]


def test_terminal_keeps_accuracies_whole_in_eighty_columns():
    said = "\n".join(printed(print_table, comparison_table(FOUR), "Four [red]algorithms"))
    for text in ("Four [red]algorithms", "verified", "nominal", "HFL (no DP)", "3.99", "12,346"):
        assert text in said
    assert "0.850 ± 0.050" in said and "0.600 (n = 1)" in said


def test_of_positions_with_one_name_the_worst_counts_and_few_are_kept(ledger):
    lines = worst_positions(ledger, 1)
    assert lines["observer"].tolist() == ["the cloud", "siblings"]
    assert lines["epsilon"].tolist() == [7.0, math.inf]
    assert lines["devices"].tolist() == [5, 5]
    # What observers who are not distrusted learn does not decide.
    assert set(lines["position"]) == {"below a server"}
    everything = worst_positions(ledger, 2)
    assert everything["position"].tolist() == ["below a server"] * 2 + ["alone"] * 2


def test_ledger_in_eighty_columns(ledger):
    lines = printed(print_ledger, ledger)
    assert max(map(len, lines)) <= 80
    assert lines[0].strip() == "Privacy ledger at δ = 1e-05 (add_remove)"
    assert cells_of(lines) == [
        ["5 devices below a server", "", "", "", ""],
        ["the cloud", "yes", "1,200", "2.5", "7"],
        ["siblings", "", "1,200", "none", "∞"],
        ["1 device alone", "", "", "", ""],
        ["the cloud", "yes", "1,200", "2.5", "1.24"],
        ["siblings", "", "1,200", "none", "∞"],
    ]

    # How many of its positions it shows.
    many = pd.concat([ledger.assign(position=f"place {i}") for i in range(9)], ignore_index=True)
    assert "the 4 of 9 positions that lose most" in words(printed(print_ledger, many, width=120))


RESULT = {
    "algorithm": "m2fdp",
    "seed": 3,
    "rounds": 30,
    "accuracy": 0.84567,
    "loss": 0.51234,
    "energy_j": 7.051,
    "delay_s": 12345.6,
    "privacy": "verified",
    "epsilon_nominal": 4.0,
    "epsilon_verified": 8.6001,
    "delta": 1e-5,
}


def test_the_result_of_a_run_with_its_epsilon_rounded_up():
    assert printed(print_result, RESULT) == [
        "M²FDP, seed 3, after 30 rounds",
        "accuracy  0.8457",
        "loss      0.5123",
        "ε         8.61 (verified), nominal 4, δ = 1e-05",
        "energy    7.05 J",
        "delay     12,346 s",
    ]

    # A model that answers one class.
    answers = "one class only, 0: its accuracy is the share of that class, 0.846"
    assert printed(print_result, RESULT | {"answers": answers})[2] == f"answers   {answers}"


def test_a_result_says_what_its_epsilon_is_worth():
    conditional = printed(print_result, RESULT | {"privacy": "conditional"})
    assert conditional[3] == (
        "ε         8.61 (conditional: see privacy_summary.json), nominal 4, δ = 1e-05"
    )
    infinite = printed(print_result, RESULT | {"epsilon_verified": "inf"})
    assert infinite[3].startswith("ε         ∞ (verified), nominal 4")
    keys = ("algorithm", "seed", "rounds", "accuracy", "loss", "energy_j", "delay_s")
    nothing = {key: RESULT[key] for key in keys} | {"algorithm": "hfl", "privacy": "none"}
    assert printed(print_result, nothing)[3] == "ε         ∞ for everybody, no privacy"


def test_the_bounds_of_the_last_round_beside_what_they_bound():
    table = pd.DataFrame(
        {
            "round": [1, 2],
            "bound": [9.0, 1234.1],
            "mean_gradient_norm_sq": [3.0, 0.18149],
            "proven_bound": [8.0, 44.51],
            "weighted_gradient_norm_sq": [3.0, 0.17],
        }
    )
    lines = printed(print_bound, table)
    assert lines[0] == "Mean squared gradient norm over 2 rounds"
    assert cells_of(lines) == [
        ["Theorem 1 as printed; plain mean", "1240", "0.181"],
        ["proven here; mean weighted by step size", "44.6", "0.17"],
    ]


MEASURES = ["epsilon_cloud", "noise", "accuracy"]
LDP, HDP = {"arm": "a", "algorithm": "ldp"}, {"arm": "b", "algorithm": "hdp"}


def measured():
    """Two seeds each; of HDP the cloud learns everything, and no noise is known."""
    frame, _ = study(HDP, LDP)
    frame.loc[frame["arm"] == "a", "epsilon_cloud"] = [1.0011, 1.2011]
    frame.loc[frame["arm"] == "a", "noise"] = [3.0, 4.0]
    frame.loc[frame["arm"] == "b", "epsilon_cloud"] = math.inf
    return frame


def test_of_bounds_the_largest_and_of_others_the_mean_in_the_algorithms_order():
    table = measure_table(measured(), MEASURES)
    assert list(table.columns) == ["algorithm", "arm", "seeds", *MEASURES]
    assert table["algorithm"].tolist() == ["ldp", "hdp"]
    assert table["seeds"].tolist() == [2, 2]
    assert table["epsilon_cloud"].tolist() == [1.2011, math.inf]
    assert table["noise"].tolist()[0] == 3.5
    assert math.isnan(table["noise"].tolist()[1])


def test_bounds_are_rounded_up_and_what_is_not_there_is_a_dash():
    lines = measures_to_markdown(measure_table(measured(), MEASURES), MEASURES).splitlines()
    assert lines == [
        "| algorithm | arm | ε, the cloud | noise over shift, broadcast | accuracy |",
        "| --- | --- | ---: | ---: | ---: |",
        "| LDP | a | 1.21 | 3.5 | 0.600 |",
        "| HDP | b | ∞ | – | 0.600 |",
    ]
