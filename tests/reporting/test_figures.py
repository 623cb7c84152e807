"""The figures show the data they are given: lines, bands, cells, labels."""

import io
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from m2fdp.core.errors import InputError
from m2fdp.reporting import figures
from m2fdp.reporting.room_figures import convergence_bounds
from m2fdp.reporting.style import DPI, look


def rounds_of(accuracies, epsilons=None, energy=2.0, **columns) -> pd.DataFrame:
    n = len(accuracies)
    rounds = np.arange(1, n + 1)
    return pd.DataFrame(
        {
            **columns,
            "round": rounds,
            "accuracy": accuracies,
            "loss": 1 - np.asarray(accuracies),
            "energy_j": energy * rounds,
            "delay_s": 3.0 * rounds,
            "epsilon": [math.nan] * n if epsilons is None else epsilons,
        }
    )


HISTORY = pd.concat(
    [
        rounds_of([0.2, 0.6, 0.8], algorithm="m2fdp", seed=0),
        rounds_of([0.4, 0.8, 0.9], algorithm="m2fdp", seed=1, energy=4.0),
        rounds_of([0.3, 0.7, 0.9], algorithm="hfl", seed=0),
    ],
    ignore_index=True,
)
CURVE = rounds_of([0.5, 0.7, 0.8], [1.0, 1.5, 1.9])
COUNTS = pd.DataFrame(
    [[3, 0, 1], [0, 5, 0], [2, 2, 2], [0, 0, 9]], index=pd.RangeIndex(4, name="device")
)
LEDGER = pd.DataFrame(
    {
        "position": ["below a server", "below a server", "alone", "alone"],
        "devices": [4, 4, 1, 1],
        "observer": ["the cloud", "devices", "the cloud", "other devices"],
        "kind": ["cloud", "far_devices", "cloud", "public"],
        "distrusted": [True, False, True, False],
        "epsilon": [7.001, math.inf, 1.2345, 0.5],
        "delta": 1e-5,
    }
)
EPSILONS = pd.DataFrame(
    {
        "round": [1, 5, 10],
        "servers": [1.0, 2.0, 3.0],
        "cloud": [2.0, 5.0, 9.0],
        "public": [2.0, 5.0, 9.0],
        "siblings": [math.inf] * 3,
    }
)
MATRIX = np.array([[8, 2, 0], [0, 0, 0], [1, 1, 8]])
DRAWN = {
    "accuracy": lambda: figures.accuracy_curve(CURVE, "M²FDP, seed 0"),
    "confusion": lambda: figures.confusion_matrix(MATRIX, ["a", "b", "c"]),
    "labels": lambda: figures.label_distribution(COUNTS),
    "comparison": lambda: figures.comparison(HISTORY),
    "ledger": lambda: figures.ledger_heat_map(LEDGER),
    "epsilon": lambda: figures.epsilon_over_rounds(EPSILONS, 4.0),
    "bounds": lambda: convergence_bounds(bounds(), "M²FDP, seed 0"),
}


def bounds() -> pd.DataFrame:
    rounds = np.arange(1, 6)
    columns = ("a1", "a2", "b", "bound")
    named = {name: 10.0 ** (i + 1) / rounds for i, name in enumerate(columns)}
    named |= {f"proven_{name}": 2 * values for name, values in named.items()}
    means = {name: 1 / rounds for name in ("mean_gradient_norm_sq", "weighted_gradient_norm_sq")}
    return pd.DataFrame({"round": rounds} | named | means)


def bands(axes) -> list[np.ndarray]:
    return [band.get_paths()[0].vertices for band in axes.collections]


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].texts]


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN.keys())
def test_bytes_are_reproducible_and_sharp(draw):
    def png() -> bytes:
        buffer = io.BytesIO()
        draw().savefig(buffer)
        return buffer.getvalue()

    assert png() == png()
    assert draw().dpi == DPI


def test_accuracy_and_epsilon_of_a_private_run():
    accuracy, epsilon = figures.accuracy_curve(CURVE, "M²FDP, seed 0").axes
    assert accuracy.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 0.7], [3, 0.8]]
    assert accuracy.get_title(loc="left") == "M²FDP, seed 0"
    assert accuracy.get_ylabel() == "accuracy"
    assert (epsilon.get_xlabel(), epsilon.get_ylabel()) == ("round", "ε verified so far")
    assert epsilon.lines[0].get_xydata().tolist() == [[0, 0], [1, 1.0], [2, 1.5], [3, 1.9]]

    # Between evaluations it is drawn as the later one.
    sparse = CURVE.assign(round=[10, 20, 30])
    (line,) = figures.accuracy_curve(sparse, "").axes[1].lines
    assert line.get_drawstyle() == "steps-pre"
    # Without epsilon there is one panel.
    (axes,) = figures.accuracy_curve(rounds_of([0.5, 0.7]), "HFL").axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "accuracy")


def test_confusions_are_shaded_by_row_and_numbered():
    axes = figures.confusion_matrix(MATRIX, ["a", "b", "c"]).axes[0]
    shares = axes.images[0].get_array()
    assert shares.tolist() == [[0.8, 0.2, 0], [0, 0, 0], [0.1, 0.1, 0.8]]
    numbers = {tuple(t.get_position()): t.get_text() for t in axes.texts}
    # (x, y) = (predicted, true)
    assert numbers == {(0, 0): "8", (1, 0): "2", (0, 2): "1", (1, 2): "1", (2, 2): "8"}
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b", "c"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted label", "true label")
    assert axes.get_title(loc="left") == "Accuracy 0.800: 16 of 20 records"

    # A hundred classes are not numbered.
    axes = figures.confusion_matrix(np.eye(100, dtype=int), [str(i) for i in range(100)]).axes[0]
    assert not axes.texts
    assert [t.get_text() for t in axes.get_yticklabels()][:3] == ["0", "10", "20"]


def test_label_distribution_shows_counts_and_sizes_and_warns():
    sizes, shares = figures.label_distribution(COUNTS).axes[:2]
    assert shares.images[0].get_array().tolist() == COUNTS.to_numpy().T.tolist()
    (outline,) = bands(sizes)
    heights = [outline[outline[:, 0] == x, 1].max() for x in (-0.5, 0.5, 1.5, 2.5, 3.5)]
    assert heights == [4, 5, 6, 9, 9]
    assert (shares.get_xlabel(), shares.get_ylabel()) == ("device", "label")
    title = sizes.get_title(loc="left")
    assert "Simulation diagnostic" in title and "not for publication under DP" in title


def test_comparison_draws_mean_and_sample_std_over_seeds():
    by_round, by_energy, _ = figures.comparison(HISTORY).axes
    hfl, m2fdp = by_round.lines
    assert m2fdp.get_xdata().tolist() == [1, 2, 3]
    np.testing.assert_allclose(m2fdp.get_ydata(), [0.3, 0.7, 0.85])
    np.testing.assert_allclose(hfl.get_ydata(), [0.3, 0.7, 0.9])
    (band,) = bands(by_round)  # none about the single seed of HFL
    std = 0.2 / math.sqrt(2)
    np.testing.assert_allclose(
        [band[band[:, 0] == 1, 1].min(), band[band[:, 0] == 1, 1].max()], [0.3 - std, 0.3 + std]
    )
    np.testing.assert_allclose(by_energy.lines[1].get_xdata(), [3, 6, 9])
    assert by_round.get_ylabel() == "accuracy (mean ± std)"
    assert (by_round.get_xlabel(), by_energy.get_xlabel()) == ("round", "energy so far (J)")


def test_comparison_shows_what_each_line_ends_with_and_averages_rounds_that_all_seeds_evaluated():
    later = HISTORY[(HISTORY["seed"] == 0) | (HISTORY["round"] < 3)]
    by_round, _, ends = figures.comparison(later).axes
    assert by_round.lines[1].get_xdata().tolist() == [1, 2]
    assert [label.get_text() for label in ends.get_yticklabels()] == ["HFL (no DP)", "M²FDP"]
    last = later.query("algorithm == 'm2fdp'").groupby("seed")["accuracy"].last().mean()
    assert [text.get_text() for text in ends.texts] == ["0.900", f"{last:.3f}"]
    np.testing.assert_allclose(ends.containers[1].lines[0].get_xydata(), [[last, 1]])


def test_comparison_names_its_lines_baselines_first_in_their_own_looks():
    figure = figures.comparison(HISTORY)
    assert legend(figure) == ["HFL (no DP) (n = 1)", "M²FDP (n = 2)"]
    for line, algorithm in zip(figure.axes[0].lines, ("hfl", "m2fdp"), strict=True):
        assert to_hex(line.get_color()) == look(algorithm).colour.lower()
        assert line.get_marker() == look(algorithm).marker


@pytest.mark.parametrize(
    ("column", "values", "labels"),
    [
        ("privacy.epsilon", (0.5, 4.0), ("privacy.epsilon = 0.5", "privacy.epsilon = 4")),
        ("arm", ("svm", "svm-p1_1"), ("svm", "svm-p1_1")),
        ("version", ("paper", "verified"), ("paper", "verified")),
    ],
)
def test_what_varies_makes_lines_of_its_own(column, values, labels):
    """Arms and versions are named as they are; an algorithm without variants has its name alone."""
    runs = pd.concat([HISTORY.assign(**{column: value}) for value in values])
    drawn = runs[(runs["algorithm"] == "m2fdp") | (runs[column] == values[-1])]
    varied = [f"M²FDP, {label} (n = 2)" for label in labels]
    assert legend(figures.comparison(drawn)) == ["HFL (no DP) (n = 1)", *varied]


def test_runs_that_would_be_mixed_up_and_none_at_all_are_refused():
    with pytest.raises(InputError, match="m2fdp, seed 0, round 1"):
        figures.comparison(pd.concat([HISTORY, HISTORY]).query("algorithm == 'm2fdp'"))
    with pytest.raises(InputError, match="nothing to compare"):
        figures.comparison(HISTORY.iloc[:0])


def test_ledger_cells_are_bounds_rounded_up_and_infinite_ones_are_hatched():
    axes = figures.ledger_heat_map(LEDGER).axes[0]
    texts = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    # (x, y) = (observer, position); a dash where the position has no such observer.
    assert texts == {
        (0, 0): "7.01", (1, 0): "∞", (2, 0): "–",
        (0, 1): "1.24", (1, 1): "–", (2, 1): "0.5",
    }  # fmt: skip
    hatched = [patch.get_xy() for patch in axes.patches if patch.get_hatch()]
    assert hatched == [(0.5, -0.5)]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["cloud\n(promise)", "far\ndevices", "public"]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == ["below a server\n(devices: 4)", "alone\n(devices: 1)"]
    shades = axes.images[0]
    assert shades.norm(7.001) > shades.norm(1.2345) > shades.norm(0.5) > 0

    # Without any noise.
    axes = figures.ledger_heat_map(LEDGER.assign(epsilon=math.inf)).axes[0]
    assert [text.get_text() for text in axes.texts].count("∞") == 4


def test_epsilon_over_rounds_on_a_log_axis_with_its_target():
    figure = figures.epsilon_over_rounds(EPSILONS, 4.0)
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    servers, cloud, target = axes.lines
    assert servers.get_xydata().tolist() == [[1, 1], [5, 2], [10, 3]]
    assert cloud.get_ydata().tolist() == [2, 5, 9]
    assert set(target.get_ydata()) == {4.0} and target.get_linestyle() == "--"
    # Observers who learn the same share a line.
    assert legend(figure) == ["servers", "cloud, public", "target 4"]
    assert "∞ (messages in clear): siblings" in axes.get_title(loc="left")


def test_a_panel_a_bound_with_its_terms_and_what_it_bounds():
    table = bounds()
    table.loc[2, "a1"] = -1.0  # the loss has grown
    figure = convergence_bounds(table, "M²FDP, seed 0")
    printed, proven = figure.axes
    assert [text.get_text() for text in figure.legends[0].texts][-1] == "measured: mean ‖∇F‖²"
    for axes, prefix, mean in ((printed, "", "mean"), (proven, "proven_", "weighted")):
        columns = [f"{prefix}{name}" for name in ("a1", "a2", "b", "bound")]
        for line, column in zip(axes.lines, [*columns, f"{mean}_gradient_norm_sq"], strict=True):
            expected = table[column].where(table[column] > 0)
            np.testing.assert_array_equal(line.get_ydata(), expected)
    assert np.isnan(printed.lines[0].get_ydata()[2])
