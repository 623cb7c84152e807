"""Panels select the runs that they show, in lines and points, and refuse to mix others in."""

import math
from typing import Any

import pandas as pd
import pytest
from pydantic import ValidationError
from tests.reporting.panel_frames import ARMS, EPSILONS, OVER_ROUNDS, TARGETS, Frames

from m2fdp.claims.declared import Layout
from m2fdp.core.errors import InputError
from m2fdp.reporting.panels import Content, check_layout, panel_contents

COLUMNS = ("arm", "version", "privacy.epsilon")


def content_of(frames: Frames, panel: dict[str, Any], labels=None) -> Content:
    layout = Layout(panels=[{"title": "A title"} | panel])
    (content,) = panel_contents(layout, frames[0], labels or {})
    return content


def table(points: pd.DataFrame) -> list[list[float]]:
    return points.reset_index().to_numpy(float).tolist()


def test_lines_of_means_over_seeds_at_each_number():
    content = content_of(EPSILONS, {"x": "topology.trust.ratios", "lines": "privacy.epsilon"})
    low, high = content.lines
    assert (low.label, high.label) == ("privacy.epsilon = 0.5", "privacy.epsilon = 2")
    assert low.algorithms == {"hfl_dp", "m2fdp"}
    std = pytest.approx(0.2 / math.sqrt(2))
    assert table(low.points) == [
        [0.0, pytest.approx(0.35), std, 2, 2],
        [0.5, pytest.approx(0.45), std, 2, 2],
        [1.0, pytest.approx(0.55), std, 2, 2],
    ]
    assert high.points["mean"].tolist() == pytest.approx([0.5, 0.6, 0.7])
    assert (content.categories, content.lack, content.names_itself) == ((), None, False)


def test_columns_may_go_by_symbols():
    panel = {"title": "", "x": "topology.trust.ratios", "lines": "privacy.epsilon"}
    names = {"topology.trust.ratios": "p₁", "privacy.epsilon": "ε"}
    (content,) = panel_contents(Layout(panels=[panel], names=names), EPSILONS[0], {})
    assert content.x_label == "p₁"
    assert [line.label for line in content.lines] == ["ε = 0.5", "ε = 2"]
    assert content_of(EPSILONS, panel).x_label == "topology.trust.ratios"
    assert content_of(ARMS, {"x": "arm", "where": {"version": "paper"}}).x_label == ""
    with pytest.raises(InputError, match="figure.names = 'eps': .*round, .*privacy.epsilon"):
        check_layout(Layout(panels=[panel], names={"eps": "ε"}), COLUMNS)


def test_names_are_categories_and_points_count_the_seeds_that_have_the_measure():
    content = content_of(TARGETS, {"x": "arm", "y": "energy_to_target"}, {"control": "ctrl"})
    assert content.categories == ("ctrl", "pedpfl", "hfl_dp")
    assert [line.label for line in content.lines] == ["ctrl", "pedpfl", "hfl_dp"]
    counts = [line.points[["seeds", "measured"]].iloc[0].tolist() for line in content.lines]
    assert counts == [[3, 3], [3, 0], [3, 2]]
    assert content.names_itself and content.lack is None


@pytest.mark.parametrize(
    ("panel", "lack"),
    [
        ({"x": "round", "where": {"arm": "later"}}, "no finished runs"),
        (
            {"x": "arm", "y": "delay_to_target", "where": {"arm": "pedpfl"}},
            "no finished run reached the target",
        ),
        ({"x": "arm", "y": "local_steps"}, "no finished run has local_steps"),
    ],
)
def test_what_a_panel_lacks(panel, lack):
    assert content_of(TARGETS, panel).lack == lack


@pytest.mark.parametrize(
    ("panel", "message"),
    [
        ({"x": "round"}, "figure.panels.0.where = 'hfl, seed 0'.*2 runs.*differ in version"),
        ({"x": "arm", "y": "delay_to_target"}, "figure.panels.0.y.*accuracy, loss, volatility"),
        (
            {"x": "arm", "where": {"version": "paper"}, "log_x": True},
            "figure.panels.0.log_x = True: arm has no numbers",
        ),
    ],
)
def test_panels_that_cannot_be_drawn_are_refused(panel, message):
    with pytest.raises(InputError, match=message):
        content_of(ARMS, panel)


def test_zero_has_no_place_on_a_logarithmic_axis():
    panel = {"x": "topology.trust.ratios", "lines": "privacy.epsilon", "log_x": True}
    with pytest.raises(InputError, match="topology.trust.ratios = 0 has no logarithm"):
        content_of(EPSILONS, panel)


@pytest.mark.parametrize(
    ("panel", "message"),
    [
        ({"x": "rounds"}, r"figure.panels.1.x = 'rounds': .*round, .*privacy.epsilon"),
        ({"x": "devices"}, "figure.panels.1.x = 'devices': .*topology.fanouts"),
        ({"x": "arm", "y": "energy"}, "figure.panels.1.y = 'energy': .*energy_to_target"),
        ({"x": "arm", "y": "energy_to_target"}, "figure.panels.1.y.*target_accuracy"),
        ({"x": "round", "y": "volatility"}, "1.y = 'volatility': .*only accuracy and loss are"),
        ({"x": "round", "lines": "fanouts"}, "figure.panels.1.lines = 'fanouts': .*version"),
        ({"x": "round", "where": {"eps": 1}}, "figure.panels.1.where.eps = 'eps': .*version"),
    ],
)
def test_layouts_are_checked_before_any_run(panel, message):
    fine = {"title": "", "x": "privacy.epsilon", "where": {"algorithm": "m2fdp", "version": "a"}}
    with pytest.raises(InputError, match=message):
        check_layout(Layout(panels=[fine, {"title": ""} | panel]), COLUMNS)


def test_layouts_that_can_be_drawn_pass():
    panels = [*OVER_ROUNDS, {"title": "", "x": "arm", "y": "energy_to_target"}]
    panels.append({"title": "", "x": "devices", "lines": "algorithm", "log_x": True})
    check_layout(Layout(panels=panels), (*COLUMNS, "topology.fanouts"), target_accuracy=0.75)


@pytest.mark.parametrize(
    "content",
    [
        {"panels": []},
        {"panels": [{"title": "", "x": "round"}], "columns": 0},
        {"panels": [{"title": "", "x": "round", "colour": "red"}]},
        {"panels": [{"x": "round"}]},
    ],
)
def test_layouts_have_panels_with_known_keys(content):
    with pytest.raises(ValidationError):
        Layout.model_validate(content)
