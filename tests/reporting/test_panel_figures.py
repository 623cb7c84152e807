"""Figures of panels: lines, dots, error bars, legends, and what is missing."""

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from tests.reporting.panel_frames import ARMS, EPSILONS, OVER_ROUNDS, ROUNDS, TARGETS, Frames, study

from m2fdp.claims.declared import Layout
from m2fdp.reporting.panel_figures import draw
from m2fdp.reporting.style import COLOURS, look


def figure_of(frames: Frames, *panels: dict[str, Any], columns: int = 2, labels=None):
    layout = Layout(columns=columns, panels=[{"title": "A title"} | panel for panel in panels])
    return draw(layout, *frames, labels or {})


def png(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer)
    return buffer.getvalue()


def names(legend) -> list[str]:
    return [text.get_text() for text in legend.texts]


def points(axes) -> list[list[list[float]]]:
    return [container.lines[0].get_xydata().tolist() for container in axes.containers]


def spread(container) -> list[list[float]]:
    """Lower and upper ends of the error bars."""
    return [segment[:, 1].tolist() for segment in container.lines[2][0].get_segments()]


def test_accuracy_over_rounds_has_a_line_an_arm_and_a_band_of_one_std():
    paper, verified = figure_of(ARMS, *OVER_ROUNDS).axes
    assert [axes.get_title(loc="left") for axes in (paper, verified)] == ["paper", "verified"]
    assert [len(axes.lines) for axes in (paper, verified)] == [3, 2]
    hfl, hfl_dp, p1_1 = paper.lines
    assert hfl.get_xdata().tolist() == ROUNDS.tolist()
    np.testing.assert_allclose(hfl_dp.get_ydata(), 0.6 * ROUNDS / 6)
    np.testing.assert_allclose(p1_1.get_ydata(), 0.7 * ROUNDS / 6)
    band = paper.collections[2].get_paths()[0].vertices
    ends = band[band[:, 0] == 6, 1]
    std = 0.2 / math.sqrt(2)
    np.testing.assert_allclose([ends.min(), ends.max()], [0.7 - std, 0.7 + std])
    assert (paper.get_xlabel(), paper.get_ylabel()) == ("round", "accuracy")
    assert paper.get_ylim() == verified.get_ylim()  # of the same measure
    for line in (*paper.lines, *verified.lines):  # a line looks the same, as its algorithm
        algorithm = {"p1_1": "m2fdp"}.get(line.get_label(), line.get_label())
        assert to_hex(line.get_color()) == look(algorithm).colour.lower()
        assert line.get_marker() == look(algorithm).marker


def test_losses_over_rounds_have_an_axis_of_their_own():
    accuracy, loss = figure_of(ARMS, OVER_ROUNDS[0], OVER_ROUNDS[0] | {"y": "loss"}).axes
    np.testing.assert_allclose(accuracy.lines[2].get_ydata(), 0.7 * ROUNDS / 6)
    np.testing.assert_allclose(loss.lines[2].get_ydata(), 3 - 0.7 * ROUNDS)
    assert loss.get_ylabel() == "loss on the test records"
    assert loss.get_ylim() != accuracy.get_ylim()
    paper, verified = figure_of(ARMS, *(panel | {"y": "loss"} for panel in OVER_ROUNDS)).axes
    assert paper.get_ylim() != verified.get_ylim()  # losses have no scale to share
    # A curve of which there are no rounds leaves the others.
    without = ARMS[0], ARMS[1].drop(columns="loss")
    accuracy, loss = figure_of(without, OVER_ROUNDS[0], OVER_ROUNDS[0] | {"y": "loss"}).axes
    assert len(accuracy.lines) == 3 and not loss.lines
    assert [text.get_text() for text in loss.texts] == ["no finished runs"]


@pytest.mark.parametrize(
    ("labels", "listed"),
    [
        ({"p1_1": "M²FDP, p1 = 1"}, ["M²FDP, p1 = 1", "hfl", "hfl_dp"]),
        ({"p1_1": "ours", "hfl": "no DP", "hfl_dp": "HFL-DP"}, ["ours", "no DP", "HFL-DP"]),
        ({}, ["hfl", "hfl_dp", "p1_1"]),  # baselines first
    ],
)
def test_panels_share_a_legend_in_the_order_of_the_labels_that_tells_the_seeds_once(labels, listed):
    figure = figure_of(ARMS, *OVER_ROUNDS, labels=labels)
    (legend,) = figure.legends
    assert names(legend) == listed
    assert legend.get_title().get_text() == "n = 2 seeds, mean ± std"
    assert not any(axes.get_legend() for axes in figure.axes)


def test_arms_of_one_algorithm_differ_in_colour_and_among_others_in_line_and_marker():
    frames = study(*({"arm": name} for name in "abcdef"))
    (axes,) = figure_of(frames, {"x": "round"}).axes
    assert len({line.get_color() for line in axes.lines}) == 6
    assert {to_hex(line.get_color()) for line in axes.lines} <= {c.lower() for c in COLOURS}
    frames = study({"arm": "a"}, {"arm": "b"}, {"arm": "c", "algorithm": "hfl"})
    _, one, other = figure_of(frames, {"x": "round"}).axes[0].lines
    assert one.get_color() == other.get_color()
    assert one.get_marker() != other.get_marker()


def test_seeds_that_differ_are_told_line_by_line():
    frames = study(
        {"arm": "a", "version": "paper"},
        {"arm": "a", "version": "verified", "finals": (0.5,)},
        {"arm": "b", "version": "paper", "finals": (0.5, 0.6, 0.7)},
    )
    (legend,) = figure_of(frames, *OVER_ROUNDS).legends
    assert names(legend) == ["a (n = 1 to 2)", "b (n = 3)"]
    assert legend.get_title().get_text() == ""


def test_panels_of_other_lines_share_a_legend_of_all():
    figure = figure_of(
        EPSILONS,
        {"x": "topology.trust.ratios", "lines": "privacy.epsilon"},
        {"x": "privacy.epsilon", "lines": "topology.trust.ratios"},
    )
    (legend,) = figure.legends
    assert set(names(legend)) == {
        *("privacy.epsilon = 0.5", "privacy.epsilon = 2"),
        *(f"topology.trust.ratios = [{ratio}]" for ratio in (0.0, 0.5, 1.0)),
    }
    assert legend.get_title().get_text() == "n = 2 seeds, mean ± std"


def test_numbers_are_connected_means_with_error_bars():
    frames = EPSILONS
    (axes,) = figure_of(frames, {"x": "topology.trust.ratios", "lines": "privacy.epsilon"}).axes
    low, high = axes.containers
    np.testing.assert_allclose(points(axes)[0], [[0, 0.35], [0.5, 0.45], [1, 0.55]])
    np.testing.assert_allclose(points(axes)[1], [[0, 0.5], [0.5, 0.6], [1, 0.7]])
    std = 0.2 / math.sqrt(2)
    np.testing.assert_allclose(spread(low)[1], [0.45 - std, 0.45 + std])
    assert low.get_label() == "privacy.epsilon = 0.5"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "0.5", "1"]
    assert axes.get_xlabel() == "topology.trust.ratios"
    # Both lines hold two algorithms, so colours stand for the lines.
    assert low.lines[0].get_color() != high.lines[0].get_color()


def test_an_infinite_dot_is_a_number_only_and_values_of_many_decades_have_a_logarithmic_axis():
    runs, history = study({"arm": "a", "finals": (0.5,)}, {"arm": "b", "finals": (0.5,)})
    for other, scale in ((math.inf, "linear"), (900.0, "log"), (9.0, "linear")):
        frames = runs.assign(epsilon_cloud=[2.0, other]), history
        (axes,) = figure_of(frames, {"x": "arm", "y": "epsilon_cloud"}).axes
        assert axes.get_xscale() == scale
        if other == math.inf:
            assert points(axes) == [[[2.0, 0.0]]]
            assert [text.get_text() for text in axes.texts] == ["2", "∞"]


def test_devices_are_a_numeric_axis_and_an_axis_may_be_logarithmic():
    frames = study(*({"arm": "a", "topology.fanouts": text} for text in ("[2, 5]", "[5, 10]")))
    (axes,) = figure_of(frames, {"x": "devices"}).axes
    np.testing.assert_allclose(points(axes), [[[10, 0.6], [50, 0.6]]])
    assert axes.get_xscale() == "linear"
    groups = [{"arm": "a", "control.alpha_1": alpha} for alpha in (0.01, 1.0, 100.0)]
    (axes,) = figure_of(study(*groups), {"x": "control.alpha_1", "log_x": True}).axes
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.01", "1", "100"]
    low, high = axes.get_xlim()
    assert low < 0.01 and high > 100


def test_arms_with_one_text_are_one_line():
    groups = [{"arm": f"D5-{alpha}", "control.alpha_1": alpha} for alpha in (1.0, 10.0)]
    labels = {"D5-1.0": "D.5", "D5-10.0": "D.5"}
    figure = figure_of(study(*groups), {"x": "control.alpha_1"}, labels=labels)
    assert len(figure.axes[0].containers) == 1
    assert names(figure.legends[0]) == ["D.5"]


def test_dots_are_means_beside_their_numbers_with_what_is_missing_told():
    figure = figure_of(TARGETS, {"x": "arm", "y": "energy_to_target"}, labels={"control": "ctrl"})
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ctrl", "pedpfl", "hfl_dp"]
    assert axes.get_ylim() == (2.5, -0.5)  # the first is on top
    # 0.9 · 5/6 reaches 0.75 in round 5, 0.75 and 0.8 in round 6, at 2 J a round.
    np.testing.assert_allclose(points(axes), [[[34 / 3, 0]], [[11, 2]]])
    numbers = {text.xy[1]: text.get_text() for text in axes.texts}
    assert numbers == {0: "11.3", 1: "– (0 of 3)", 2: "11 (2 of 3)"}
    assert axes.get_xlabel() == "energy to the target (J)"
    assert not figure.legends and not axes.get_legend()
    assert figure.get_supxlabel() == "n = 3 seeds, dots: mean and 95 % interval"


def test_a_dot_lies_in_students_interval():
    frames = study({"arm": "a", "finals": (0.5, 0.6, 0.7)}, {"arm": "b", "finals": (0.9, 0.9, 0.9)})
    (axes,) = figure_of(frames, {"x": "arm"}).axes
    (a,), (b,) = (
        [segment[:, 0] for segment in bars.lines[2][0].get_segments()] for bars in axes.containers
    )
    half = 4.302652729911275 * 0.1 / math.sqrt(3)  # Student's quantile, two degrees of freedom
    np.testing.assert_allclose(a, [0.6 - half, 0.6 + half])
    np.testing.assert_allclose(b, [0.9, 0.9])


def test_the_axis_of_dots_is_where_the_values_are_and_intervals_of_two_seeds_hide_nothing():
    def ends(a, b):
        frames = study({"arm": "a", "finals": a}, {"arm": "b", "finals": b})
        return figure_of(frames, {"x": "arm"}).axes[0].get_xlim()

    low, high = ends((0.971, 0.972, 0.973), (0.981, 0.982, 0.983))
    assert 0.96 < low < 0.971 and 0.983 < high < 0.99
    low, high = ends((0.5, 0.52), (0.6, 0.62))
    assert high - low < 4 * 0.1  # an interval alone is 0.25 wide
    low, high = ends((0.1, 0.9), (0.5, 1.0))
    assert low > -0.1 and high < 1.1  # no accuracy lies further


def test_dots_tell_seeds_that_differ():
    frames = study({"arm": "a"}, {"arm": "b", "finals": (0.5, 0.6, 0.7)})
    figure = figure_of(frames, {"x": "arm"})
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.600 (n = 2)", "0.600 (n = 3)"]
    assert figure.get_supxlabel() == "dots: mean and 95 % interval"


def test_lines_are_dots_below_each_other_in_a_category():
    figure = figure_of(ARMS, {"x": "version"})
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["paper", "verified"]
    lines = zip(axes.containers, points(axes), strict=True)
    places = {bars.get_label(): [y for _, y in at] for bars, at in lines}
    paper = [places[name][0] for name in ("hfl", "hfl_dp", "p1_1")]
    assert paper == sorted(paper) and paper[0] > -0.5 and paper[2] < 0.5
    np.testing.assert_allclose(places["p1_1"][1], 1 + paper[2])
    assert names(figure.legends[0]) == ["hfl", "hfl_dp", "p1_1"]
    assert figure.legends[0].get_title().get_text().endswith("dots: mean and 95 % interval")


def test_panels_beside_each_other_name_the_same_rows_once():
    panels = [{"x": "arm", "where": {"version": name}} for name in ("paper", "paper", "verified")]
    ticks = [
        [label.get_text() for label in axes.get_yticklabels()]
        for axes in figure_of(ARMS, *panels, columns=3).axes
    ]
    assert ticks == [["hfl", "hfl_dp", "p1_1"], [""] * 3, ["hfl", "p1_1"]]


def test_lists_are_categories_in_the_order_of_their_numbers():
    texts = ["[10, 5]", "[2, 25]", "[2, 5]"]
    frames = study(*({"arm": "a", "topology.fanouts": text} for text in texts))
    (axes,) = figure_of(frames, {"x": "topology.fanouts"}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == texts[::-1]
    assert axes.get_ylabel() == "topology.fanouts"


def test_points_that_some_seeds_lack_are_told_below():
    frames = study(
        {"arm": "a", "privacy.epsilon": 1.0, "finals": (0.5, 0.6)},
        {"arm": "a", "privacy.epsilon": 2.0, "finals": (0.5, 0.75)},
        {"arm": "a", "privacy.epsilon": 4.0, "finals": (0.75, 0.75)},
        target=0.75,
    )
    (axes,) = figure_of(frames, {"x": "privacy.epsilon", "y": "rounds_to_target"}).axes
    assert {text.xy[0]: text.get_text() for text in axes.texts} == {1: "0 of 2", 2: "1 of 2"}
    assert axes.get_xlim()[0] < 1


def test_a_panel_without_runs_says_so_and_others_are_drawn():
    empty_panel = {"title": "emnist", "x": "round", "where": {"version": "later"}}
    drawn, empty = figure_of(ARMS, OVER_ROUNDS[0], empty_panel).axes
    assert len(drawn.lines) == 3
    assert [text.get_text() for text in empty.texts] == ["no finished runs"]
    assert empty.get_title(loc="left") == "emnist"
    nothing = ARMS[0].iloc[:0], ARMS[1].iloc[:0]
    for axes in figure_of(nothing, *OVER_ROUNDS, {"x": "arm"}).axes:
        assert [text.get_text() for text in axes.texts] == ["no finished runs"]


def test_a_shared_scale_cuts_no_marker_off():
    spans = {"low": (0.1, 0.1), "high": (0.9, 0.9)}
    frames = study(
        *(
            {"arm": arm, "version": "paper", "privacy.epsilon": epsilon, "finals": finals}
            for arm, finals in spans.items()
            for epsilon in (1.0, 3.0)
        )
    )
    panels = [{"x": "privacy.epsilon", "where": {"arm": arm}} for arm in spans]
    for axes in figure_of(frames, *panels).axes:
        low, high = axes.get_ylim()
        assert low <= 0.1 - 0.04 * (high - low) and high >= 0.9 + 0.04 * (high - low)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_titles_and_legends_never_overlap(columns):
    title = "A title that is much longer than any panel of a figure is wide, and goes on, and on"
    panels = [{**panel, "title": title} for panel in (*OVER_ROUNDS, OVER_ROUNDS[0])]
    figure = figure_of(
        ARMS, *panels, {"title": title, "x": "arm", "where": {"version": "paper"}}, columns=columns
    )
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [legend.get_tightbbox() for legend in figure.legends]
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 + 1


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bytes_do_not_depend_on_the_order_of_the_rows(seed):
    frames = study(
        *(
            {"arm": arm, "version": "paper", "privacy.epsilon": epsilon, "finals": (0.1, 0.2, 0.7)}
            for arm in "ab"
            for epsilon in (1.0, 3.0)
        )
    )
    panels = [
        {"x": "round", "where": {"privacy.epsilon": 1}},
        {"x": "privacy.epsilon"},
        {"x": "arm", "where": {"privacy.epsilon": 3}},
    ]
    shuffled = tuple(frame.sample(frac=1, random_state=seed) for frame in frames)
    assert png(figure_of(shuffled, *panels)) == png(figure_of(frames, *panels))
