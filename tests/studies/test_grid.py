"""The cells that a study expands to."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.studies.parameters import BASE

from m2fdp.core.errors import InputError
from m2fdp.studies.grid import Setting, check_size, choice_of, expand, points, varied_keys
from m2fdp.studies.study import Study

SEARCH = {
    "spaces": {"few": {"grids": [{"training.rounds": [2, 3]}]}},
    "seeds": [7],
    "validation_fraction": 0.2,
}


def cells_of(extra=None, last=None, schedules=None, **study):
    setting = Setting("tiny", Study(title="Tiny", **study), BASE, last or {}, extra or {})
    return expand(setting, schedules or {})


def names_of(**study):
    return [cell.name for cell in cells_of(**study)]


def test_grid_is_a_product_in_the_files_order():
    cells = cells_of(grid={"algorithm": ["hfl", "m2fdp"], "seed": [0, 1]})
    pairs = [(name, seed) for name in ("hfl", "m2fdp") for seed in (0, 1)]
    assert [cell.name for cell in cells] == [f"{name}-seed_{seed}" for name, seed in pairs]
    assert [(cell.config.algorithm, cell.config.seed) for cell in cells] == pairs
    assert cells[0].config.cell == "tiny/hfl-seed_0"
    assert cells[0].overrides == {"algorithm": "hfl", "seed": 0, "cell": "tiny/hfl-seed_0"}


def test_a_study_of_more_runs_than_anyone_waits_for_is_refused_by_its_number():
    """Runs of searches count, too: 2 epsilons x 60 x 10 schedules x 9 seeds, once for all seeds."""
    check_size("tiny", Study(title="t", grid={"seed": [*range(1000)]}))
    grid = {"seed": [*range(1000)], "privacy.epsilon": [float(k) for k in range(1, 1001)]}
    with pytest.raises(InputError, match=r"study.tiny.grid = '1,000,000 cells': at most 10,000"):
        check_size("tiny", Study(title="t", grid=grid))
    grids = [{"training.learning_rate": [*range(60)], "training.rounds": [*range(10)]}]
    search = SEARCH | {"spaces": {"s": {"grids": grids}}, "seeds": [*range(9)]}
    study = Study(
        title="t",
        arms={"a": {"space": "s"}},
        grid={"seed": [*range(5)], "privacy.epsilon": [1, 2]},
        versions={"v": {"search": search}},
    )
    with pytest.raises(InputError, match="'10 cells and 10,800 runs of its searches'"):
        check_size("tiny", study)


def test_arms_override_the_shared_parameters_and_cross_with_the_grid():
    cells = cells_of(
        parameters={"training": {"rounds": 7}, "training.learning_rate": 0.5},
        arms={
            "open": {"algorithm": "hfl", "training.learning_rate": 2.0},
            "half": {"topology.trust.ratios": [0.5]},
        },
        grid={"seed": [4]},
    )
    arms = [(cell.name, cell.point.arm, cell.tags["arm"]) for cell in cells]
    assert arms == [(f"{arm}-seed_4", arm, arm) for arm in ("open", "half")]
    assert [cell.config.training.learning_rate for cell in cells] == [2.0, 0.5]
    assert {cell.config.training.rounds for cell in cells} == {7}

    (cell,) = cells_of()  # without arms and grid
    assert (cell.name, cell.point.arm, cell.tags) == ("single", None, {"cell_hash": cell.hash})


def test_names_tell_the_varied_values_and_stay_inside_one_folder():
    grid = {"topology.trust.ratios": [[0.25]], "privacy.epsilon": [1e-3], "dataset.name": ["npz"]}
    grid |= {"model.name": ["svm"], "dataset.root": ["../else where"]}
    assert names_of(grid=grid) == [
        "ratios_0.25-epsilon_0.001-dataset.name_npz-model.name_svm-root_.._else_where"
    ]


def test_the_command_line_overrides_shared_parameters_and_a_scale_everything():
    rounds = {"training.rounds": 9}
    (typed,) = cells_of(extra={"training": {"rounds": "3"}}, parameters=rounds, grid={"seed": [1]})
    (small,) = cells_of(arms={"a": rounds}, last={"training.rounds": 1})
    assert [cell.config.training.rounds for cell in (typed, small)] == [3, 1]


def test_hash_depends_on_the_meaning_not_on_the_spelling():
    (written,) = cells_of(parameters={"training.rounds": 5, "topology.fanouts": "2|2"})
    (typed,) = cells_of(extra={"training": {"rounds": "5"}}, grid={"seed": [0]})
    (defaulted,) = cells_of(parameters={"training.rounds": 5, "training.batch_size": None})
    (threads,) = cells_of(parameters={"training.rounds": 5, "threads": 2})  # no result's business
    assert written.hash == typed.hash == defaulted.hash == threads.hash
    assert len(written.hash) == 64


@pytest.mark.parametrize(
    ("change", "other"),
    [
        ({"seed": 1}, {}),
        ({"partition.samples_per_device": 7}, {}),
        ({"training.batch_size": 3}, {}),
        ({"privacy.epsilon": 3.9}, {}),
        ({"topology.fanouts": [2, 3]}, {}),
        # Where files are.
        *[[{"dataset.name": "mnist", "dataset.root": folder} for folder in "ab"]],
    ],
)
def test_hash_changes_with_everything_else(change, other):
    assert cells_of(parameters=change)[0].hash != cells_of(parameters=other)[0].hash


LATER = {"arms": {"a": {"space": "few"}}, "versions": {"v": {"search": SEARCH}}}
AT = {"versions": {"v": {"search": SEARCH | {"at": {"privacy.epsilon": 1.0}}}}}
SEEDED = {"versions": {"v": {"parameters": {"seed": 1}}}}


@pytest.mark.parametrize(
    ("study", "extra", "parts"),
    [
        ({"grid": {"training.roundz": [1]}}, {}, "training.roundz … 1 … rounds"),
        ({"grid": {"privacy.epsilon": [1, -1]}}, {}, "privacy.epsilon … -1 … greater than 0"),
        ({"grid": {"algorithm": ["sgd"]}}, {}, "algorithm … 'sgd' … m2fdp"),
        ({"grid": {"seed": [0, 0]}}, {}, "seed_0 … a run apart"),
        ({"grid": {"privacy.epsilon": [1, 1.0]}}, {}, "epsilon_1.0 … epsilon_1;"),
        ({"parameters": {"seed": 1}, "grid": {"seed": [0]}}, {}, "grid.seed … elsewhere"),
        ({"arms": {"a": {"seed": 1}}, "grid": {"seed": [0]}}, {}, "grid.seed … elsewhere"),
        ({"arms": {"a": {"model": {"name": "svm"}}}}, {"model": {"name": "svm"}}, "varies"),
        ({"grid": {"arm": ["a"]}}, {}, "arm … unknown key"),
        ({"parameters": {"cell": "x"}}, {}, "cell … 'x' … remove"),
        ({"grid": {"seed": [0]}}, {"seed": 3}, "seed … 3 … varies"),
        ({"parameters": {"training": 3}}, {"training": {"rounds": 1}}, "training … set … keep"),
        ({"arms": {"a": {"over": {"seed": [1]}}}, "grid": {"seed": [0]}}, {}, "grid.seed … an arm"),
        (SEEDED | {"grid": {"seed": [0]}}, {}, "grid.seed … elsewhere"),
        (SEEDED, {"seed": 2}, "seed … varies"),
        (LATER, {"training": {"rounds": 2}}, "training.rounds … varies"),
        (AT, {}, "search.at.privacy.epsilon … 1.0"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(study, extra, parts):
    with pytest.raises(InputError) as error:
        cells_of(extra=extra, **study)
    line = str(error.value)
    assert "\n" not in line
    assert all(part in line for part in parts.split(" … ")), line


def test_versions_cross_with_arms_and_an_arms_value_wins():
    cells = cells_of(
        parameters={"training.rounds": 9, "training.local_steps": 9},
        arms={"a": {"training.local_steps": 1}, "b": {"algorithm": "hfl"}},
        versions={
            "paper": {"parameters": {"training.rounds": 3, "training.local_steps": 5}},
            "verified": {"arms": ["b"]},
        },
    )
    assert [cell.name for cell in cells] == ["paper-a", "paper-b", "verified-b"]
    schedules = [(c.config.training.rounds, c.config.training.local_steps) for c in cells]
    assert schedules == [(3, 1), (3, 5), (9, 9)]
    assert cells[0].tags == {"version": "paper", "arm": "a", "cell_hash": cells[0].hash}


def test_an_arms_own_grid_crosses_with_the_studys_and_it_stands_for_what_it_sets():
    wide = {"over": {"topology.fanouts": [[2, 2], [4, 2]]}, "training.rounds": 3}
    study = {"arms": {"wide": wide, "still": {"algorithm": "hfl"}}, "grid": {"seed": [0, 1]}}
    lines = ("wide-fanouts_2_2", "wide-fanouts_4_2", "still")
    assert names_of(**study) == [f"{line}-seed_{seed}" for line in lines for seed in (0, 1)]
    plan = Study(title="Arms", **study)
    assert varied_keys(plan) == ("arm", "topology.fanouts", "seed")
    assert varied_keys(plan.model_copy(update={"arms": {}})) == ("seed",)

    # Arms that come to the same run are runs apart.
    twins = cells_of(arms={"a": {"training.rounds": 3}, "b": {"training": {"rounds": "3"}}})
    assert twins[0].config.training == twins[1].config.training
    assert twins[0].hash != twins[1].hash


def test_what_adds_no_noise_is_not_run_again_for_another_epsilon():
    grid = {"algorithm": ["m2fdp", "hfl"], "privacy.epsilon": [1.0, 2.0]}
    with pytest.raises(
        InputError, match="hfl-epsilon_2.0'?: is the run of hfl-epsilon_1.0: hfl adds"
    ):
        cells_of(grid=grid)
    assert len(cells_of(grid=grid | {"algorithm": ["m2fdp", "hfl_dp"]})) == 4


def test_a_searched_arm_has_cells_where_it_has_a_schedule():
    study = {
        "arms": {"a": {"space": "few"}, "b": {"algorithm": "hfl"}},
        "versions": {"plain": {}, "tuned": {"search": SEARCH}},
        "grid": {"seed": [0, 1]},
    }
    lines = ("plain-a", "plain-b", "tuned-b")
    assert names_of(**study) == [f"{line}-seed_{seed}" for line in lines for seed in (0, 1)]
    plan = Study(title="Arms", **study)
    (place,) = {c.place for point in points(plan) if (c := choice_of(plan, point))}
    cells = cells_of(**study, schedules={place: {"training.rounds": 3}})
    rounds = {cell.name: cell.config.training.rounds for cell in cells}
    assert rounds["tuned-a-seed_0"] == rounds["tuned-a-seed_1"] == 3
    assert rounds["plain-a-seed_0"] == rounds["tuned-b-seed_0"] == 2


@pytest.mark.parametrize(
    ("shared", "arm_value", "every"),
    [(None, {1: 1}, {1: 1}), ({1: 1}, None, {}), ({1: 1}, {1: 2}, {1: 2})],
)
def test_a_block_takes_the_place_of_null_and_null_a_blocks(shared, arm_value, every):
    (cell,) = cells_of(
        parameters={"training.local_aggregation": shared},
        arms={"a": {"training.local_aggregation": arm_value}},
    )
    assert cell.config.training.local_aggregation == every


@given(
    axes=st.dictionaries(
        st.sampled_from(["seed", "training.rounds", "training.local_steps", "topology.fanouts"]),
        st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
        max_size=2,
    )
)
@settings(max_examples=25)
def test_cells_are_as_many_as_the_product_and_all_apart(axes):
    if "topology.fanouts" in axes:
        axes["topology.fanouts"] = [[value, 2] for value in axes["topology.fanouts"]]
    cells = cells_of(grid=axes)
    assert len(cells) == math.prod(len(values) for values in axes.values())
    assert len({cell.name for cell in cells}) == len({c.hash for c in cells}) == len(cells)
