"""What a study is asked for: a part of it by `--only`, or a sweep that needs no file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2fdp.core.errors import InputError
from m2fdp.studies.grid import points
from m2fdp.studies.order import Order, part_of, sweep
from m2fdp.studies.study import Study

STUDY = Study(
    title="Arms",
    versions={"paper": {"arms": ["1", "p1_1"]}, "verified": {}},
    arms={"1": {}, "p1_1": {"over": {"privacy.epsilon": [0.5, 1.0]}}, "hfl": {}},
    grid={
        "topology.trust.ratios": [[0.5], [1.0, 0.5]],
        "privacy.target": [None, 3],
        "seed": [0, 1],
    },
)
EPSILONS, ALGORITHMS = "privacy.epsilon=1|2|4", "algorithm=m2fdp|hfl_dp"
MODELS, RATIOS = "model.name=svm|softmax", "topology.trust.ratios=[0.0]|[1.0]"


def names_of(*only):
    return [point.name for point in part_of(STUDY, only)]


@pytest.mark.parametrize(
    ("only", "picked"),
    [
        ([], lambda p: True),
        (["version=paper"], lambda p: p.version == "paper"),
        (["arm=hfl", "arm=p1_1"], lambda p: p.arm in ("hfl", "p1_1")),
        (["arm=1"], lambda p: p.arm == "1"),
        (["seed=1", "version=verified"], lambda p: p.values["seed"] == 1 and p.version != "paper"),
        (["privacy.epsilon=1"], lambda p: p.values.get("privacy.epsilon") == 1.0),
        (["privacy.epsilon=5e-1"], lambda p: p.values.get("privacy.epsilon") == 0.5),
        (["topology.trust.ratios=[1, 0.5]"], lambda p: len(p.values["topology.trust.ratios"]) == 2),
        (["privacy.target=null"], lambda p: p.values["privacy.target"] is None),
    ],
)
def test_values_of_a_key_add_up_and_keys_narrow(only, picked):
    expected = [point.name for point in points(STUDY) if picked(point)]
    assert expected and names_of(*only) == expected


@given(st.lists(st.sampled_from(["version=paper", "arm=hfl", "arm=1", "seed=0", "seed=1"])))
def test_the_order_of_conditions_changes_nothing(only):
    picked = []
    for given_order in (only, reversed(only)):
        try:
            picked.append(names_of(*given_order))
        except InputError:
            picked.append(None)
    assert picked[0] == picked[1]


def test_a_sweep_is_the_grid_of_its_keys_and_of_the_first_seeds():
    study = sweep([ALGORITHMS, RATIOS, EPSILONS], 2)
    assert study.grid == {
        "algorithm": ["m2fdp", "hfl_dp"],
        "topology.trust.ratios": [[0.0], [1.0]],
        "privacy.epsilon": [1, 2, 4],
        "seed": [0, 1],
    }
    assert study.title == "A sweep over algorithm and topology.trust.ratios and privacy.epsilon"
    assert sweep([EPSILONS], None).grid["seed"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("over", "axes"),
    [
        # Numbers are an axis, and the algorithms its lines.
        ([ALGORITHMS, EPSILONS], ("privacy.epsilon", "algorithm", False)),
        ([EPSILONS], ("privacy.epsilon", "algorithm", False)),
        (["privacy.epsilon=0.5|8"], ("privacy.epsilon", "algorithm", True)),
        ([MODELS, RATIOS], ("topology.trust.ratios", "model.name", False)),
        # Without numbers there are dots; one value is no axis.
        ([ALGORITHMS], ("algorithm", "algorithm", False)),
        ([MODELS, ALGORITHMS], ("model.name", "algorithm", False)),
        (["privacy.epsilon=1", ALGORITHMS], ("privacy.epsilon", "algorithm", False)),
    ],
)
def test_what_a_sweep_shows(over, axes):
    (panel,) = sweep(over, 1).figure.panels
    assert (panel.x, panel.lines, panel.log_x) == axes


def test_what_neither_axis_nor_lines_show_has_panels():
    layout = sweep([EPSILONS, MODELS, ALGORITHMS], 1).figure
    found = [(panel.title, panel.where) for panel in layout.panels]
    assert found == [(f"model.name = {m}", {"model.name": m}) for m in ("svm", "softmax")]
    assert layout.columns == 2


@pytest.mark.parametrize(
    ("ask", "parts"),
    [
        (lambda _: names_of("hfl"), ["--only = 'hfl'", "KEY=VALUE", "version, arm, privacy.eps"]),
        (lambda _: names_of("arms=hfl"), ["--only = 'arms'", "version, arm, privacy.epsilon"]),
        (lambda _: names_of("arm=nope"), ["--only arm = 'nope'", "1, p1_1, hfl"]),
        (lambda _: names_of("seed=0", "seed=7"), ["--only seed = '7'", "0, 1"]),
        (lambda _: names_of("seed=[0"), ["--only seed = '[0'", "0, 1"]),
        (lambda _: names_of("version=paper", "arm=hfl"), ["version=paper, arm=hfl", "no cell"]),
        (lambda _: sweep([], 3), ["--over = '(none)': what the sweep goes over is missing"]),
        (lambda _: sweep(["a.b"], 3), ["--over = 'a.b': give KEY=VALUE|VALUE"]),
        (lambda _: sweep(["a.b=1|"], 3), ["--over = 'a.b=1|': give KEY=VALUE|VALUE"]),
        (lambda _: sweep(["=1"], 3), ["--over = '=1': give KEY=VALUE|VALUE"]),
        (lambda _: sweep(["seed=1|2"], 3), ["--over = 'seed=1|2': give --seeds=N"]),
        (
            lambda _: sweep([ALGORITHMS, "algorithm=hfl"], 3),
            ["--over = 'algorithm=hfl': algorithm is given twice"],
        ),
        # A study that has a file.
        (lambda conf: Order("fig5", over=(EPSILONS,)).study(conf, "base"), [f"= '{EPSILONS}'"]),
        (lambda conf: Order("fig5", seeds=3).study(conf, "base"), ["--seeds = 3: is an option of"]),
    ],
)
def test_what_asks_for_nothing_is_one_line(tmp_path, ask, parts):
    with pytest.raises(InputError) as refusal:
        ask(tmp_path)
    assert all(part in str(refusal.value) for part in parts), str(refusal.value)


def test_sweeps_over_other_keys_are_other_studies_and_say_how_they_are_typed():
    order = Order("sweep", None, "mnist", {"training": {"rounds": 2}}, (EPSILONS,), 4)
    assert order.identity == "sweep-privacy.epsilon-mnist"
    assert order.identity == Order("sweep", env="mnist", over=("privacy.epsilon=8",)).identity
    assert order.command == (
        f"kedro study sweep '--over={EPSILONS}' --seeds=4 --env=mnist --params=training.rounds=2"
    )
