"""The search for schedules: what is tried, what is chosen, what is listed."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from tests.studies.parameters import BASE

from m2fdp.core.config import DatasetConfig
from m2fdp.core.errors import InputError
from m2fdp.selection.accounting import split_target
from m2fdp.studies.grid import Setting, expand, points
from m2fdp.studies.search import Tried, _may_share, choose, next_candidates, search_table
from m2fdp.studies.search_report import at_ends, ends, search_markdown
from m2fdp.studies.study import Study

RATES = {"grids": [{"training.rounds": [5], "training.learning_rate": [0.1, 0.2]}]}


def setting_of(arms, spaces, grid=None, target_accuracy=None, **search):
    search = {"spaces": spaces, "seeds": [7, 8], "validation_fraction": 0.2} | search
    search = {key: value for key, value in search.items() if value is not None}
    study = Study(
        title="Arms",
        arms=arms,
        versions={"v": {"search": search}},
        grid=grid or {"seed": [0, 1, 2]},
        target_accuracy=target_accuracy,
    )
    return Setting("tiny", study, BASE, {}, {})


def candidates_of(setting, schedules=None, tried=()):
    return next_candidates(setting, points(setting.study), schedules or {}, tried)


def rates_of(candidates):
    return [candidate.schedule["training.learning_rate"] for candidate in candidates]


def cells_of(candidates):
    return [cell for candidate in candidates for cell in candidate.cells]


def all_alike(candidates):
    """As if every run had come to the same."""
    return {cell.hash: Tried(0.5) for cell in cells_of(candidates)}


def arms_of(candidates):
    return {candidate.choice.point.arm for candidate in candidates}


def test_every_candidate_of_the_union_of_grids_is_tried_on_held_out_records_by_all_seeds():
    space = {"grids": [*RATES["grids"], {"training.learning_rate": [0.3]}]}
    candidates = candidates_of(setting_of({"a": {"space": "s"}}, {"s": space}))
    assert rates_of(candidates) == [0.1, 0.2, 0.3]
    assert "training.rounds" not in candidates[2].schedule
    for candidate in candidates:
        assert [cell.config.seed for cell in candidate.cells] == [7, 8]
        for cell in candidate.cells:
            assert cell.config.training.evaluate_on == "validation"
            assert cell.config.partition.validation_fraction == 0.2
    assert {cell.config.training.rounds for cell in cells_of(candidates[:2])} == {5}
    assert candidates[1].cells[0].config.cell == "tiny/search/v-a-seed_7-2"


def test_the_best_mean_wins_and_of_equals_the_first():
    setting = setting_of({"a": {"space": "s"}}, {"s": RATES})
    first, second = candidates_of(setting)
    for accuracies, winner in (
        ((0.5, 0.7, 0.8, 0.5), second),
        ((0.5, 0.7, 0.7, 0.5), first),
        ((0.5, 0.7, math.nan, 0.9), first),
    ):
        cells = [*first.cells, *second.cells]
        results = {c.hash: Tried(a) for c, a in zip(cells, accuracies, strict=True) if a == a}
        assert choose((first, second), results) == {first.choice.place: winner.schedule}
    assert choose((first, second), {}) == {}
    assert candidates_of(setting, {}, (first, second)) == ()


@pytest.mark.parametrize(
    ("costs", "winner", "reported_cost"),
    [
        ((9.0, 5.0, 6.0, 7.0), 1, "6.5 ± 0.707 J (n = 2)"),
        ((9.0, 5.0, 2.0, None), 0, "7 ± 2.83 J (n = 2)"),  # one seed does not get there
        ((None, None, 20.0, None), 1, "20 J (n = 1)"),
        ((None, None, None, None), 0, "not reached"),  # then the more accurate one
    ],
)
def test_the_cheapest_way_to_the_target_wins_of_those_that_most_seeds_reach_it_by(
    costs, winner, reported_cost
):
    search = {"by": "energy_to_target"}
    setting = setting_of({"a": {"space": "s"}}, {"s": RATES}, target_accuracy=0.7, **search)
    both = candidates_of(setting)
    cells = cells_of(both)
    results = {
        c.hash: Tried(accuracy, math.nan if cost is None else cost)
        for c, cost, accuracy in zip(cells, costs, (0.8, 0.8, 0.6, 0.6), strict=True)
    }
    chosen = choose(both, results)
    assert chosen == {both[0].choice.place: both[winner].schedule}
    text = search_markdown(search_table(both, results, chosen))
    assert f"| {reported_cost} |" in text
    assert "energy to the target (J) of 0.7, of those that reach it with the most seeds" in text


def test_a_schedule_is_chosen_for_each_value_of_the_grid_but_of_keys_that_share_one():
    arms, grid = {"a": {"space": "s"}}, {"privacy.epsilon": [1.0, 2.0], "seed": [0, 1]}
    candidates = candidates_of(setting_of(arms, {"s": RATES}, grid))
    epsilons = [one.cells[0].config.privacy.epsilon for one in candidates]
    assert epsilons == [1.0, 1.0, 2.0, 2.0]
    assert len({one.choice.place for one in candidates}) == 2
    setting = setting_of(arms, {"s": RATES}, grid, at={"privacy.epsilon": 2.0})
    candidates = candidates_of(setting)
    assert {one.cells[0].config.privacy.epsilon for one in candidates} == {2.0}
    cells = expand(setting, choose(candidates, all_alike(candidates)))
    assert [cell.config.privacy.epsilon for cell in cells] == [1.0, 1.0, 2.0, 2.0]
    assert {cell.config.training.rounds for cell in cells} == {5}


LIKE_A = {"schedule_of": "a", "grids": [{"training.learning_rate": [0.7, 0.9]}]}


@pytest.mark.parametrize("only", ["b", None])
def test_a_space_may_start_from_another_arms_choice_and_a_part_needs_no_other(only):
    arms = {
        "b": {"algorithm": "hfl", "space": "like_a"},
        "a": {"space": "s"},
        "c": {"algorithm": "hfl_dp", "space": "s"},
    }
    setting = setting_of(arms, {"s": RATES, "like_a": LIKE_A})
    chosen = [point for point in points(setting.study) if only in (None, point.arm)]
    first = next_candidates(setting, chosen, {}, [])
    assert arms_of(first) == ({"a"} if only else {"a", "c"})
    # The same candidates, hence the same runs, as in the whole study.
    assert {one.cells[0].hash for one in first} <= {
        c.hash for c in cells_of(candidates_of(setting))
    }
    schedules = choose(first, all_alike(first))
    second = next_candidates(setting, chosen, schedules, first)
    assert arms_of(second) == {"b"}
    assert [candidate.schedule for candidate in second] == [
        {"training.rounds": 5, "training.learning_rate": rate} for rate in (0.7, 0.9)
    ]
    assert next_candidates(setting, chosen, schedules, [*first, *second]) == ()
    # Where nothing finished nobody follows.
    assert next_candidates(setting, chosen, {}, first) == ()
    assert expand(setting, {}) == ()


def test_the_table_tells_every_candidate_and_the_text_the_budget():
    setting = setting_of({"a": {"space": "s"}}, {"s": RATES})
    candidates = candidates_of(setting)
    cells = cells_of(candidates)
    accuracy = {c.hash: Tried(a) for c, a in zip(cells, (0.5, 0.7, 0.9, 0.8), strict=True)}
    table = search_table(candidates, accuracy, choose(candidates, accuracy))
    assert table["chosen"].tolist() == [False, True]
    assert table["accuracy_mean"].tolist() == pytest.approx([0.6, 0.85])
    assert table["accuracy_std"].iloc[0] == pytest.approx(math.sqrt(0.02))
    text = search_markdown(table)
    assert "4 runs" in text
    assert "Held-out records lie in clear with the cloud" in text
    assert "training.learning_rate=0.2 (largest tried) | 0.850 ± 0.071 |" in text
    assert "| v | a |  | 2 | 2 |" in text
    shared = search_table([*candidates, *candidates], accuracy, {})
    assert shared["seeds"].tolist() == [2, 2, 2, 2]
    assert "4 runs" in search_markdown(shared)
    none = search_table(candidates, {}, {})
    assert "none finished" in search_markdown(none)


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ((200, 1.0), {"training.rounds": "smallest"}),
        ((200, 0.5), {"training.rounds": "smallest", "training.learning_rate": "smallest"}),
        ((200, 4.0), {"training.learning_rate": "largest"}),
        ((300, 2.0), {"training.learning_rate": "largest"}),
        (None, {}),  # alone
    ],
)
def test_what_lies_at_an_end_is_said_among_those_that_differ_in_nothing_else(chosen, found):
    tried = [(200, 0.5), (200, 1.0), (200, 4.0), (300, 0.5), (300, 1.0), (300, 2.0)]
    other = 'training.local_aggregation={"1": 5}, training.rounds=900, training.learning_rate=9.0'
    texts = [f"training.rounds={n}, training.learning_rate={rate}" for n, rate in tried]
    table = pd.DataFrame({"version": "v", "arm": "a", "values": "", "schedule": [*texts, other]})
    table["chosen"] = [one == chosen for one in [*tried, None]]
    assert ends(table) == found
    said = "1 of 1 schedule takes the largest or smallest value" if found else ""
    assert at_ends(table).startswith(said) and bool(at_ends(table)) == bool(found)
    assert at_ends(table.iloc[:0]) == ""


SYNTHETIC = {"dataset.name": "synthetic", "dataset.records": 600}


def test_a_search_of_other_records_sees_none_of_the_study_whatever_else_names_its_data():
    setting = setting_of({"a": {"space": "s"}}, {"s": RATES}, parameters=SYNTHETIC)
    asked = replace(setting, extra={"dataset": {"name": "mnist"}}, last={"training.rounds": 3})
    candidates = candidates_of(asked)
    assert {cell.config.dataset.name for cell in cells_of(candidates)} == {"synthetic"}
    assert {one.others for one in candidates} == {'dataset.name="synthetic", dataset.records=600'}
    schedules = {candidates[0].choice.place: candidates[0].schedule}
    assert {cell.config.dataset.name for cell in expand(asked, schedules)} == {"mnist"}
    results = all_alike(candidates)
    text = search_markdown(search_table(candidates, results, schedules))
    assert "private arms of v were chosen on other records" in text and "lie in clear" not in text

    # What may be the study's own records is called so.
    for parameters in ({"dataset.name": "digits"}, {"dataset.scale": "unit_norm"}, {}):
        setting = setting_of({"a": {"space": "s"}}, {"s": RATES}, parameters=parameters)
        candidates = candidates_of(setting)
        assert {one.others for one in candidates} == {""}
        text = search_markdown(search_table(candidates, {}, {}))
        assert "Held-out records lie in clear" in text


def test_every_candidate_is_tried_on_all_of_several_data_sets():
    over = {"dataset.name": ["mnist", "synthetic"]}
    setting = setting_of({"a": {"space": "s"}}, {"s": RATES}, over=over)
    candidates = candidates_of(setting)
    for one in candidates:
        tried = [(cell.config.dataset.name, cell.config.seed) for cell in one.cells]
        assert sorted(tried) == [("mnist", 7), ("mnist", 8), ("synthetic", 7), ("synthetic", 8)]
        assert len({cell.name for cell in one.cells}) == 4
    accuracies = (0.9, 0.1, 0.9, 0.1, 0.6, 0.6, 0.6, 0.6)
    cells = cells_of(candidates)
    results = {c.hash: Tried(a) for c, a in zip(cells, accuracies, strict=True)}
    assert choose(candidates, results) == {candidates[0].choice.place: candidates[1].schedule}


def test_a_counted_search_has_the_seed_split_and_part_of_epsilon_of_each_released_run():
    arms = {"a": {"space": "s"}, "open": {"space": "s", "algorithm": "hfl"}}
    setting = setting_of(arms, {"s": RATES}, seeds=None, counted=True, share=0.5)
    candidates = candidates_of(setting)
    private, public = ([c for c in candidates if c.choice.point.arm == a] for a in ("a", "open"))
    seeds = [[cell.config.seed for cell in one.cells] for one in private]
    assert seeds == [[0], [0], [1], [1], [2], [2]]
    targets = split_target(4.0, 1e-5, 2, 0.5)
    for one in private:
        (cell,) = one.cells
        assert one.counted and cell.config.partition.held_out_by == "devices"
        assert cell.config.privacy.epsilon == targets.searched
        assert one.schedule["privacy.epsilon"] == targets.released
    cells = expand(setting, {one.choice.place: one.schedule for one in candidates})
    epsilons = {(cell.point.arm, cell.config.privacy.epsilon) for cell in cells}
    assert epsilons == {("a", targets.released), ("open", 4.0)}
    assert all(cell.config.partition.held_out_by == "cloud" for cell in cells)
    # Whoever promises nothing has nothing to count.
    assert not any(one.counted for one in public)
    text = search_markdown(search_table(private, {}, {}))
    assert "Counted searches" in text and "lie in clear" not in text
    # A counted choice follows no other.
    arms = {"a": {"space": "s"}, "b": {"space": "like_a"}}
    setting = setting_of(arms, {"s": RATES, "like_a": LIKE_A}, seeds=None, counted=True)
    first = candidates_of(setting)
    with pytest.raises(InputError, match="counts no choice that follows another's"):
        candidates_of(setting, {one.choice.place: one.schedule for one in first}, first)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"by": "energy_to_target", "seeds": [7]}, "energy_to_target needs target_accuracy"),
        ({"seeds": None}, "give seeds"),
        ({"counted": True, "seeds": [1]}, "seeds: a counted search has the seed of the released"),
        ({"counted": True, "over": {"training.rounds": [1, 2]}}, "over: a counted"),
        ({"counted": True, "parameters": SYNTHETIC}, "dataset.name: records must"),
        ({"counted": True, "parameters": {"topology.fanouts": [3]}}, "fanouts: records must stay"),
    ],
)
def test_a_search_that_can_not_be_is_refused(search, message):
    with pytest.raises(ValueError, match=message):
        setting_of({"a": {"space": "s"}}, {"s": RATES}, **{"seeds": None} | search)


def test_arms_without_privacy_are_chosen_on_the_studys_own_records():
    arms = {"open": {"space": "s", "algorithm": "hfl"}, "a": {"space": "s"}}
    over = {"training.rounds": [2, 3]}
    space = {"grids": [{"training.learning_rate": [0.1, 0.2]}]}
    setting = setting_of(arms, {"s": space}, parameters=SYNTHETIC, over=over)
    for one in candidates_of(setting):
        names = [cell.config.dataset.name for cell in one.cells]
        assert names == (["digits"] * 2 if one.choice.point.arm == "open" else ["synthetic"] * 4)
        assert bool(one.others) == (one.choice.point.arm == "a")


@pytest.mark.parametrize(
    ("may", "pairs"),
    [
        (True, ["mnist mnist", "npz npz", "npz cifar10", "cifar10 own:data"]),
        (True, ["synthetic synthetic"]),
        (False, ["mnist fashion_mnist", "npz synthetic"]),
    ],
)
def test_what_lies_in_a_file_may_be_anyones_records(may, pairs):
    for pair in pairs:
        sets = [DatasetConfig(name=name, root="a") for name in pair.split()]
        assert _may_share(*sets) == _may_share(*reversed(sets)) == may
