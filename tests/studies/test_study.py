"""Studies' files: what they may say, and their smaller scales."""

import pytest

from m2fdp.core.errors import InputError
from m2fdp.studies.study import Study, load_study, scaled


def write(folder, text, env="base", name="tiny"):
    path = folder / env / "studies" / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_an_environments_file_holds_only_what_differs(tmp_path):
    write(
        tmp_path,
        "title: base\nparameters: {seed: 1, model.name: svm}\narms: {a: {}, b: {}}\n"
        "grid: {seed: [1, 2]}\n",
    )
    write(
        tmp_path,
        "title: mine\nparameters: {model.name: cnn12}\narms: {b: null}\ngrid: {seed: [3]}\n",
        env="mine",
    )
    assert load_study(tmp_path, "tiny", "other") == load_study(tmp_path, "tiny")
    mine = load_study(tmp_path, "tiny", "mine")
    assert mine.title == "mine"
    assert mine.parameters == {"seed": 1, "model.name": "cnn12"}
    assert (list(mine.arms), mine.grid) == (["a"], {"seed": [3]})

    # Numbers may be written as powers of ten.
    write(tmp_path, "title: t\nparameters: {privacy.delta: 1e-5}\n")
    assert load_study(tmp_path, "tiny").parameters == {"privacy.delta": 1e-5}


def test_unknown_and_reserved_names_are_refused(tmp_path):
    write(tmp_path, "title: t\n")
    write(tmp_path, "title: t\n", name="other")
    write(tmp_path, "title: t\n", name="report")
    with pytest.raises(InputError, match="the studies are other, report, tiny|other, tiny"):
        load_study(tmp_path, "nope")
    with pytest.raises(InputError, match="reserved"):
        load_study(tmp_path, "report")


SEARCH = """
versions:
  tuned:
    search:
      seeds: [1, 2, 3]
      validation_fraction: 0.1
      spaces: {few: {grids: [{training.rounds: [1, 2]}]}}
"""


def test_an_arms_parameters_stand_beside_its_own_keys(tmp_path):
    arms = "{a: {label: A, algorithm: hfl, over: {seed: [1]}, space: few}}"
    write(tmp_path, f"title: t\narms: {arms}\n{SEARCH}")
    arm = load_study(tmp_path, "tiny").arms["a"]
    assert (arm.parameters, arm.label, arm.over) == ({"algorithm": "hfl"}, "A", {"seed": [1]})
    assert arm.space == "few"


TWICE = "{training.rounds: 1, training: {rounds: 2}}"
FOLLOWS = SEARCH.replace("{grids", "{schedule_of: a, grids")
MORE = SEARCH.replace("{few: {", "{more: {schedule_of: a, grids: [{seed: [1]}]}, few: {")
CIRCLE = MORE.replace("few: {grids", "few: {schedule_of: b, grids")
IN_NO_SPACE = "schedule_of … a is in no space of (none)"
CLAIM = "{claim: c, source: s, paper: p, measure: accuracy, of: {}, at_lest: 1}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "title: t\ngrids: {}\n",
            "study.tiny.grids … unknown key … arms, board, claims, decides, env",
        ),
        ("grid: {seed: [0]}\n", "study.tiny.title … (missing)"),
        ("title: t\ngrid: {seed: []}\n", "study.tiny.grid.seed … [] … at least 1"),
        ("title: t\ngrid: {seed: 3}\n", "study.tiny.grid.seed … 3 … list"),
        ("title: t\narms: {a/b: {}}\n", "study.tiny.arms … a/b"),
        ("title: ''\ngrid: {seed: [0]}\n", "study.tiny.title … '' … at least 1 character"),
        (f"title: t\nparameters: {TWICE}\n", "tiny.parameters … sets training.rounds twice"),
        (f"title: t\narms: {{a: {TWICE}}}\n", "tiny.arms.a … sets training.rounds twice"),
        ("title: [\n", "studies/tiny.yml, line 2 … no YAML"),
        ("just text\n", "tiny"),
        # What refers to nothing.
        ("title: t\narms: {a: {space: many}}\n" + SEARCH, "arms.a.space … 'many' … few"),
        ("title: t\nversions: {v: {arms: [a]}}\n", "versions.v.arms … 'a' … (none)"),
        ("title: t\nversions: {v: {armz: []}}\n", "versions.v.armz … arms, parameters, search"),
        ("title: t\n" + SEARCH.replace("0.1", "0.0"), "validation_fraction … 0.0 … greater than 0"),
        ("title: t\n" + FOLLOWS, "spaces.few.schedule_of … 'a' … (none)"),
        ("title: t\narms: {a: {}}\n" + FOLLOWS, f"few.{IN_NO_SPACE}"),
        ("title: t\narms: {a: {space: few}, b: {space: more}}\n" + CIRCLE, f"more.{IN_NO_SPACE}"),
        (f"title: t\nclaims: [{CLAIM}]\n", "claims.0 … at_lest … as, at_least, at_most, claim"),
        ("title: t\nfigure: {panels: []}\n", "figure.panels … at least 1"),
        ("title: t\nscales: {small: {rounds: 1}}\n", "scales.small.rounds … env, grid, parameters"),
        ("title: t\narms: {label: {over: {seed: []}}}\n", "arms.label.over.seed … at least 1"),
    ],
)
def test_a_file_that_is_no_study_is_refused_in_one_line(tmp_path, text, parts):
    write(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_study(tmp_path, "tiny")
    line = str(error.value)
    assert "\n" not in line
    assert all(part in line for part in parts.split(" … ")), line


def test_a_scale_shrinks_grid_and_search(tmp_path):
    write(
        tmp_path,
        "title: t\nenv: big\ngrid: {seed: [0, 1, 2], privacy.epsilon: [1, 2]}\n"
        "scales: {smoke: {env: base, grid: {seed: [0]}, search_seeds: [9], "
        "search_values: 1}}\n" + SEARCH,
    )
    study = load_study(tmp_path, "tiny")
    small = scaled("tiny", study, "smoke")
    assert (small.env, small.title) == ("base", "t (smoke scale)")
    assert small.grid == {"seed": [0], "privacy.epsilon": [1, 2]}
    assert small.versions["tuned"].search.seeds == [9]
    assert study.versions["tuned"].search.seeds == [1, 2, 3]
    for name, space in small.versions["tuned"].search.spaces.items():
        whole = study.versions["tuned"].search.spaces[name]
        assert space.grids == [{k: v[:1] for k, v in grid.items()} for grid in whole.grids]
        assert any(len(values) > 1 for grid in whole.grids for values in grid.values())
    with pytest.raises(InputError, match="no such scale; there are smoke"):
        scaled("tiny", study, "large")
    with pytest.raises(InputError, match=r"there are \(none\)"):
        scaled("tiny", Study(title="t"), "smoke")
