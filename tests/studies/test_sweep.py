"""Studies without a file: what they run, what they show, and what is refused."""

import pytest

from m2fdp.core.errors import InputError
from m2fdp.studies.order import Order, sweep

EPSILONS, ALGORITHMS = "privacy.epsilon=1|2|4", "algorithm=m2fdp|hfl_dp"


def shown(*over):
    (panel,) = sweep(over, 1).figure.panels
    return panel.x, panel.lines, panel.log_x


def test_a_sweep_is_the_grid_of_its_keys_and_of_the_first_seeds():
    study = sweep([ALGORITHMS, "topology.trust.ratios=[0.5]|[1.0]", EPSILONS], 2)
    assert study.grid == {
        "algorithm": ["m2fdp", "hfl_dp"],
        "topology.trust.ratios": [[0.5], [1.0]],
        "privacy.epsilon": [1, 2, 4],
        "seed": [0, 1],
    }
    assert study.title == "A sweep over algorithm and topology.trust.ratios and privacy.epsilon"
    assert sweep([EPSILONS], None).grid["seed"] == [0, 1, 2]


def test_numbers_are_an_axis_and_the_algorithms_its_lines():
    assert shown(ALGORITHMS, EPSILONS) == ("privacy.epsilon", "algorithm", False)
    assert shown(EPSILONS) == ("privacy.epsilon", "algorithm", False)
    assert shown("privacy.epsilon=0.5|8") == ("privacy.epsilon", "algorithm", True)
    ratios = "topology.trust.ratios=[0.0]|[1.0]"
    assert shown("model.name=svm|softmax", ratios) == (
        "topology.trust.ratios",
        "model.name",
        False,
    )


def test_without_numbers_there_are_dots():
    assert shown(ALGORITHMS) == ("algorithm", "algorithm", False)
    assert shown("model.name=svm|softmax", ALGORITHMS) == ("model.name", "algorithm", False)
    assert shown("privacy.epsilon=1", ALGORITHMS)[0] == "privacy.epsilon"  # one value is no axis


def test_what_neither_axis_nor_lines_show_has_panels():
    layout = sweep([EPSILONS, "model.name=svm|softmax", ALGORITHMS], 1).figure
    assert [panel.where for panel in layout.panels] == [
        {"model.name": "svm"},
        {"model.name": "softmax"},
    ]
    assert [panel.title for panel in layout.panels] == [
        "model.name = svm",
        "model.name = softmax",
    ]
    assert layout.columns == 2


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ([], "--over = '(none)': what the sweep goes over is missing"),
        (["privacy.epsilon"], "--over = 'privacy.epsilon': give KEY=VALUE|VALUE"),
        (["privacy.epsilon=1|"], "--over = 'privacy.epsilon=1|': give KEY=VALUE|VALUE"),
        (["=1"], "--over = '=1': give KEY=VALUE|VALUE"),
        (["seed=1|2"], "--over = 'seed=1|2': give --seeds=N"),
        ([ALGORITHMS, "algorithm=hfl"], "--over = 'algorithm=hfl': algorithm is given twice"),
    ],
)
def test_what_is_no_sweep_is_one_line(over, line):
    with pytest.raises(InputError) as refused:
        sweep(over, 3)
    assert str(refused.value).startswith(line)


def test_a_study_with_a_file_takes_no_options_of_a_sweep(tmp_path):
    for order, line in (
        (Order("fig5", over=(EPSILONS,)), f"--over = '{EPSILONS}'"),
        (Order("fig5", seeds=3), "--seeds = 3"),
    ):
        with pytest.raises(InputError) as refused:
            order.study(tmp_path, "base")
        assert str(refused.value).startswith(line)


def test_sweeps_over_other_keys_are_other_studies_and_say_how_they_are_typed():
    order = Order("sweep", None, "mnist", {"training": {"rounds": 2}}, (EPSILONS,), 4)
    assert order.identity == "sweep-privacy.epsilon-mnist"
    assert order.identity == Order("sweep", env="mnist", over=("privacy.epsilon=8",)).identity
    assert order.command == (
        f"kedro study sweep '--over={EPSILONS}' --seeds=4 --env=mnist --params=training.rounds=2"
    )
