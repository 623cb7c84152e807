"""Studies' files and their expansion into cells."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m2fdp.config import flatten
from m2fdp.errors import InputError
from m2fdp.studies.grid import Study, expand, load_study, nest, varied_keys

BASE = {
    "algorithm": "m2fdp",
    "seed": 0,
    "dataset": {"name": "digits"},
    "partition": {"scheme": "iid"},
    "topology": {"fanouts": [2, 2], "trust": {"ratios": [0.5]}},
    "model": {"name": "softmax"},
    "training": {"rounds": 2, "local_steps": 2, "learning_rate": 0.1},
    "privacy": {"epsilon": 4.0, "delta": 1e-5, "clipping_norm": 1.0},
    "resources": {},
}


def cells_of(extra=None, base=BASE, **study):
    return expand("tiny", Study(title="Tiny", **study), base, extra or {})


def write(folder, text, env="base", name="tiny"):
    path = folder / env / "studies" / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_grid_is_a_product_in_the_files_order():
    cells = cells_of(grid={"algorithm": ["hfl", "m2fdp"], "seed": [0, 1]})
    assert [cell.name for cell in cells] == [
        "hfl-seed_0",
        "hfl-seed_1",
        "m2fdp-seed_0",
        "m2fdp-seed_1",
    ]
    assert [(cell.config.algorithm, cell.config.seed) for cell in cells] == [
        ("hfl", 0),
        ("hfl", 1),
        ("m2fdp", 0),
        ("m2fdp", 1),
    ]
    assert cells[0].config.cell == "tiny/hfl-seed_0"
    assert cells[0].overrides == {"algorithm": "hfl", "seed": 0, "cell": "tiny/hfl-seed_0"}


def test_arms_override_the_shared_parameters_and_cross_with_the_grid():
    cells = cells_of(
        parameters={"training": {"rounds": 7}, "training.learning_rate": 0.5},
        arms={
            "open": {"algorithm": "hfl", "training.learning_rate": 2.0},
            "half": {"topology.trust.ratios": [0.5]},
        },
        grid={"seed": [4]},
    )
    assert [cell.name for cell in cells] == ["open-seed_4", "half-seed_4"]
    assert [cell.arm for cell in cells] == ["open", "half"]
    assert [cell.tags["arm"] for cell in cells] == ["open", "half"]
    assert [cell.config.training.learning_rate for cell in cells] == [2.0, 0.5]
    assert {cell.config.training.rounds for cell in cells} == {7}


def test_a_study_without_arms_and_grid_is_one_cell():
    (cell,) = cells_of()
    assert cell.name == "single"
    assert cell.arm is None
    assert cell.tags == {"cell_hash": cell.hash}


def test_names_tell_the_varied_values_and_stay_inside_one_folder():
    (cell,) = cells_of(
        grid={
            "topology.trust.ratios": [[0.25]],
            "privacy.epsilon": [1e-3],
            "dataset.name": ["digits"],
            "model.name": ["svm"],
            "dataset.root": ["../else where"],
        }
    )
    assert cell.name == (
        "ratios_0.25-epsilon_0.001-dataset.name_digits-model.name_svm-root_.._else_where"
    )


def test_the_command_line_overrides_the_shared_parameters():
    (cell,) = cells_of(
        extra={"training": {"rounds": "3"}}, parameters={"training.rounds": 9}, grid={"seed": [1]}
    )
    assert cell.config.training.rounds == 3


def test_an_arm_stands_for_the_keys_that_it_sets():
    study = Study(title="", arms={"a": {"training.rounds": 1}}, grid={"seed": [0]})
    assert varied_keys(study) == ("arm", "seed")
    assert varied_keys(study.model_copy(update={"arms": {}})) == ("seed",)


def test_hash_depends_on_the_meaning_not_on_the_spelling():
    (written,) = cells_of(parameters={"training.rounds": 5, "topology.fanouts": "2|2"})
    (typed,) = cells_of(extra={"training": {"rounds": "5"}}, grid={"seed": [0]})
    (defaulted,) = cells_of(parameters={"training.rounds": 5, "training.batch_size": None})
    assert written.hash == typed.hash == defaulted.hash
    assert len(written.hash) == 64


def test_hash_ignores_what_no_result_depends_on():
    (one,) = cells_of(parameters={"threads": 1})
    (two,) = cells_of(parameters={"threads": 2}, grid={"seed": [0]})
    assert one.hash == two.hash


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1),
        ("partition.alpha", 0.7),
        ("training.batch_size", 3),
        ("privacy.epsilon", 3.9),
        ("dataset.root", "elsewhere"),
        ("topology.fanouts", [2, 3]),
    ],
)
def test_hash_changes_with_everything_else(key, value):
    assert cells_of(parameters={key: value})[0].hash != cells_of()[0].hash


@pytest.mark.parametrize(
    ("study", "extra", "parts"),
    [
        ({"grid": {"training.roundz": [1]}}, {}, ["training.roundz", "1", "rounds"]),
        ({"grid": {"privacy.epsilon": [1, -1]}}, {}, ["privacy.epsilon", "-1", "greater than 0"]),
        ({"grid": {"algorithm": ["sgd"]}}, {}, ["algorithm", "'sgd'", "m2fdp"]),
        ({"grid": {"seed": [0, 0]}}, {}, ["seed_0", "a run apart"]),
        ({"grid": {"privacy.epsilon": [1, 1.0]}}, {}, ["epsilon_1.0", "epsilon_1;"]),
        ({"parameters": {"seed": 1}, "grid": {"seed": [0]}}, {}, ["grid.seed", "elsewhere"]),
        ({"arms": {"a": {"seed": 1}}, "grid": {"seed": [0]}}, {}, ["grid.seed", "elsewhere"]),
        ({"arms": {"a": {"model": {"name": "svm"}}}}, {"model": {"name": "svm"}}, ["varies"]),
        ({"grid": {"arm": ["a"]}}, {}, ["arm", "unknown key"]),
        ({"parameters": {"cell": "x"}}, {}, ["cell", "'x'", "remove"]),
        ({"grid": {"seed": [0]}}, {"seed": 3}, ["seed", "3", "varies"]),
        ({"parameters": {"training": 3}}, {"training": {"rounds": 1}}, ["training", "1", "keep"]),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(study, extra, parts):
    with pytest.raises(InputError) as error:
        cells_of(extra=extra, **study)
    line = str(error.value)
    assert "\n" not in line
    assert all(part in line for part in parts), line


def test_an_environments_study_replaces_bases(tmp_path):
    write(tmp_path, "title: base\n")
    write(tmp_path, "title: mine\n", env="mine")
    assert load_study(tmp_path, "tiny").title == "base"
    assert load_study(tmp_path, "tiny", "mine").title == "mine"
    assert load_study(tmp_path, "tiny", "other").title == "base"


def test_numbers_in_a_file_may_be_written_as_powers_of_ten(tmp_path):
    write(tmp_path, "title: t\nparameters: {privacy.delta: 1e-5}\n")
    assert load_study(tmp_path, "tiny").parameters == {"privacy.delta": 1e-5}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("title: t\ngrids: {}\n", ["study.tiny.grids", "unknown key", "arms, env, grid"]),
        ("grid: {seed: [0]}\n", ["study.tiny.title", "(missing)"]),
        ("title: t\ngrid: {seed: []}\n", ["study.tiny.grid.seed", "[]", "at least 1"]),
        ("title: t\ngrid: {seed: 3}\n", ["study.tiny.grid.seed", "3", "list"]),
        ("title: t\narms: {a/b: {}}\n", ["study.tiny.arms", "a/b"]),
        ("title: [\n", ["study", "tiny", "not valid YAML"]),
        ("just text\n", ["tiny"]),
    ],
)
def test_a_file_that_is_no_study_is_refused_in_one_line(tmp_path, text, parts):
    write(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_study(tmp_path, "tiny")
    line = str(error.value)
    assert "\n" not in line
    assert all(part in line for part in parts), line


def test_unknown_and_reserved_names_are_refused(tmp_path):
    write(tmp_path, "title: t\n")
    write(tmp_path, "title: t\n", name="other")
    write(tmp_path, "title: t\n", name="report")
    with pytest.raises(InputError, match="the studies are other, report, tiny|other, tiny"):
        load_study(tmp_path, "nope")
    with pytest.raises(InputError, match="reserved"):
        load_study(tmp_path, "report")


keys = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join)
values = st.integers() | st.text(max_size=3) | st.none() | st.lists(st.integers(), max_size=2)
trees = st.recursive(
    values, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
).filter(lambda tree: isinstance(tree, dict))


@given(trees)
def test_nest_inverts_flatten(tree):
    assert nest(flatten(tree)) == tree


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
    assert len({cell.name for cell in cells}) == len(cells)
    assert len({cell.hash for cell in cells}) == len(cells)
