"""MLflow's runs as frames: which runs count, and what their columns hold."""

import math

import mlflow
import pytest
from mlflow.entities import Metric
from tests.studies.logged_runs import log_run
from tests.studies.parameters import BASE

from m2fdp.claims.frames import HISTORY_COLUMNS, RUN_COLUMNS
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.pipelines.recording import AS_PROMISED_TAGS, INFINITE_TAG
from m2fdp.reporting.figures import comparison
from m2fdp.reporting.tables import comparison_table
from m2fdp.studies import tracked_runs
from m2fdp.studies.grid import Setting, expand, varied_keys
from m2fdp.studies.study import Study
from m2fdp.studies.tracked_runs import (
    differing,
    expected_runs,
    load_decisions,
    load_history,
    load_metrics,
    load_runs,
)

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture(params=[False, True], ids=["database", "client"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories read from the database itself, and as from a server."""
    if request.param:
        monkeypatch.setattr(tracked_runs, "is_database", lambda uri: False)


def test_runs_have_their_last_metrics_and_their_tags_and_a_history():
    ids = [log_run("m2fdp", 1), log_run("hfl", 0, (0.9,))]
    runs = load_runs(ids)
    assert list(runs.columns) == list(RUN_COLUMNS)
    assert runs.index.tolist() == ids
    texts = {"algorithm": "m2fdp", "seed": 1, "role": "method", "privacy": "verified"}
    numbers = {"accuracy": 0.8, "loss": pytest.approx(0.2), "energy_j": 4.0, "delay_s": 6.0}
    bounds = {"epsilon_nominal": 4.0, "epsilon_verified": 3.9}
    assert runs.iloc[0].to_dict() == texts | numbers | bounds
    assert math.isnan(runs.iloc[1]["epsilon_verified"])
    history = load_history(runs)
    assert list(history.columns) == list(HISTORY_COLUMNS)
    assert history[["algorithm", "seed", "round", "accuracy"]].to_numpy().tolist() == [
        ["m2fdp", 1, 5, 0.5],
        ["m2fdp", 1, 10, 0.8],
        ["hfl", 0, 5, 0.9],
    ]  # every evaluated round
    assert history["run_id"].tolist() == [ids[0], ids[0], ids[1]]
    assert history["epsilon"].tolist()[:2] == [1.0, 2.0]
    assert math.isnan(history["epsilon"].iloc[2])


def test_of_a_metric_logged_twice_in_a_round_the_later_counts_and_what_is_no_number_is_missing(
    each_way,
):
    run_id = log_run(accuracies=(0.5,))
    earlier, later = (Metric("accuracy", value, time, 5) for value, time in ((0.6, 1), (0.7, 2)))
    no_number = Metric("loss", math.nan, 9, 10)
    mlflow.MlflowClient().log_batch(run_id, metrics=[later, earlier, no_number])
    history = load_history(load_runs([run_id]))
    assert (history["accuracy"].tolist(), history["round"].tolist()) == ([0.7], [5])


def test_the_history_is_read_by_one_query(monkeypatch):
    ids = [log_run(seed=seed) for seed in range(2)]
    monkeypatch.delattr(mlflow.MlflowClient, "get_metric_history")  # a read a run and metric
    assert len(load_history(load_runs(ids))) == 4


def test_decisions_are_of_every_round_of_runs_with_a_controller(each_way):
    controlled = log_run(decisions=[(5, 8, 8), (3, 2, 4), (4, 2, 0)])
    without = log_run(seed=1)
    assert load_decisions([without, controlled, controlled]).to_dict("list") == {
        "run_id": [controlled] * 3,
        "round": [1, 2, 3],
        "local_steps": [5, 3, 4],
        "s_trusted": [8, 2, 2],
        "s_untrusted": [8, 4, 0],
    }
    assert list(load_history(load_runs([controlled]))["round"]) == [5, 10]  # evaluated ones only
    none, columns = load_decisions([without]), ["local_steps", "s_trusted", "s_untrusted"]
    assert none.empty and list(none) == ["run_id", "round", *columns]


def test_what_observers_of_zones_learn():
    run_id, plain_run = log_run(), log_run(seed=1)
    client = mlflow.MlflowClient()
    for name, value in {
        "v": 10.0,
        "epsilon/cloud": 4.4,
        "epsilon/cloud_with_1_super-nodes_of_other_zones": 5.0,
        "epsilon/cloud_with_3_super-nodes_of_other_zones": 6.0,
        "least_epsilon/public": 0.5,
    }.items():
        client.log_metric(run_id, f"zones/{name}", value)
    client.set_tag(run_id, INFINITE_TAG, "zones/epsilon/super-node zones/epsilon/elected")
    zones = load_metrics([run_id, plain_run, run_id])
    assert zones.index.tolist() == [run_id, plain_run]
    assert zones.loc[run_id].dropna().to_dict() == {
        "v": 10.0,
        "epsilon_cloud": 4.4,
        "epsilon_coalition": 6.0,
        "least_epsilon_public": 0.5,
        "epsilon_super_node": math.inf,
    }
    assert zones.loc[plain_run].isna().all()

    # Observers without a metric of their own learn what is verified.
    run_id = log_run()
    for name, value in (("epsilon_verified", 8.0), ("epsilon_observer/cloud", 2.0)):
        client.log_metric(run_id, name, value)
    client.set_tag(run_id, AS_PROMISED_TAGS["verified"], "epsilon_observer/servers")
    metrics = load_metrics([run_id]).loc[run_id].dropna().to_dict()
    assert metrics == {"ledger_servers": 8.0, "ledger_cloud": 2.0}


def test_only_finished_runs_with_an_accuracy_count_and_of_equal_ones_the_latest():
    finished = log_run(seed=0)
    others = [log_run(seed=1, status="FAILED"), log_run(seed=2, accuracies=())]
    assert load_runs([*others, finished]).index.tolist() == [finished]
    for load, ids in ((load_runs, others), (load_runs, []), (differing, others)):
        with pytest.raises(InputError, match="no finished run.*kedro study quickstart"):
            load(ids)
    ids = [log_run(seed=3, accuracies=(accuracy,)) for accuracy in (0.6, 0.7)]
    for order in (ids, ids[::-1]):
        assert load_runs(order)["accuracy"].tolist() == [0.7]


def test_a_parameter_that_a_run_has_not_read_has_its_default():
    usual = Config().audit.repetitions
    silent, said = log_run("m2fdp"), log_run("m2fdp", **{"audit.repetitions": usual})
    assert load_runs([silent, said]).index.tolist() == [said]  # the later of two equal ones
    other = log_run("m2fdp", seed=1, **{"audit.repetitions": 2 * usual})
    runs = load_runs([silent, other], ["audit.repetitions"])
    assert runs["audit.repetitions"].tolist() == [usual, 2 * usual]
    assert differing([silent, other]) == ("audit.repetitions",)
    with pytest.raises(InputError, match=rf"audit.repetitions = \['{usual}', '{2 * usual}'\]"):
        load_runs([silent, other])
    # So has a run that is older than a key.
    old, new = log_run(seed=0), log_run(seed=1, **{"topology.weights": "uniform"})
    third = log_run(seed=0, **{"topology.weights": "samples"})
    assert len(load_runs([old, new])) == 2
    with pytest.raises(InputError, match=r"topology.weights = \['samples', 'uniform'\]"):
        load_runs([old, new, third])
    frame = load_runs([old, new, third], ["topology.weights"])
    assert frame["topology.weights"].tolist() == ["uniform", "uniform", "samples"]
    # Of a mapping a run tells all its entries.
    without = log_run("m2fdp", **{"training.local_aggregation": None})
    assert load_runs([without], ["training.local_aggregation.1"]).isna().iloc[0, -1]


def test_a_run_on_a_split_of_its_own_is_no_later_run_of_the_same():
    ids = [log_run("m2fdp", 0, (accuracy,)) for accuracy in (0.5, 0.6)]
    for run_id, digest in zip(ids, "ab", strict=True):
        mlflow.MlflowClient().set_tag(run_id, "split_sha256", digest)
    runs = load_runs(ids)
    assert runs.index.tolist() == ids
    with pytest.raises(InputError, match="is there more than once"):
        comparison_table(runs)


def test_varied_parameters_are_columns_numbers_where_they_can_be():
    varied = ("algorithm", "seed", "privacy.epsilon", "topology.trust.ratios", "training.batch")
    settings = [(0.5, [0.5], None), (4.0, [1.0], 8)]
    ids = [log_run(**dict(zip(varied[2:], values, strict=True))) for values in settings]
    runs = load_runs(ids, varied)
    for frame in (runs, load_history(runs).drop_duplicates(varied[2])):
        assert list(frame.columns[-3:]) == list(varied[2:])
        assert frame["privacy.epsilon"].tolist() == [0.5, 4.0]
        assert frame["topology.trust.ratios"].tolist() == ["[0.5]", "[1.0]"]
        assert math.isnan(frame["training.batch"].iloc[0])
        assert frame["training.batch"].iloc[1] == 8


def test_what_is_chosen_for_each_seed_may_differ_between_seeds_and_nothing_else():
    ids = [log_run(seed=seed, **{"training.learning_rate": seed + 1.0}) for seed in (0, 1)]
    with pytest.raises(InputError, match=r"training\.learning_rate"):
        load_runs(ids)
    assert set(load_runs(ids, (), ["training.learning_rate"])["seed"]) == {0, 1}
    with pytest.raises(InputError, match=r"training\.learning_rate"):
        load_runs(ids, (), ["training.rounds"])


@pytest.mark.parametrize("tag", ["arm", "version"])
def test_arms_and_versions_stand_for_what_their_runs_share(tag):
    values = {"1": {"training.rounds": 60}, "2": {"training.rounds": 80}}
    ids = [log_run(**{tag: name}, **params) for name, params in values.items()]
    runs = load_runs(ids, (tag, "seed"))
    for frame in (runs, load_history(runs).drop_duplicates(tag)):
        assert frame.columns[-1] == tag
        assert frame[tag].tolist() == ["1", "2"]  # a name, even where it reads as a number
    mixed = [*ids, log_run(seed=1, **{tag: "1"}, **values["2"])]
    for runs, varied in ((mixed, (tag, "seed")), (ids, ("seed",))):
        with pytest.raises(InputError, match=r"training.rounds = \['60', '80'\].*m2fdp"):
            load_runs(runs, varied)


def test_the_frames_are_what_reports_take():
    runs = load_runs([log_run(name, seed) for name in ("hfl", "m2fdp") for seed in (0, 1)])
    assert comparison_table(runs)["seeds"].tolist() == [2, 2]
    assert len(comparison(load_history(runs)).axes[0].lines) == 2


def test_expected_runs_have_the_columns_of_the_finished_ones():
    values = {"privacy.epsilon": 1.0, "topology.fanouts": [3, 2], "topology.weights": "uniform"}
    grid = {"privacy.epsilon": [1.0, 2.0], "topology.fanouts": [[3, 2]], "seed": [8]}
    grid["topology.weights"] = ["uniform", "samples"]  # later than other keys
    study = Study(title="Arms", arms={"a": {}}, grid=grid)
    cells = expand(Setting("tiny", study, BASE, {}, {}), {})
    varied = varied_keys(study)
    planned = expected_runs(cells, varied)
    finished = load_runs([log_run(seed=8, arm="a", **values)], varied)
    assert list(planned.columns) == list(finished.columns)
    assert planned.index.tolist() == [cell.name for cell in cells]
    columns = ["algorithm", "seed", "arm", *values]
    assert planned[columns].iloc[0].to_dict() == finished[columns].iloc[0].to_dict()
    assert planned["privacy.epsilon"].tolist() == [1.0, 1.0, 2.0, 2.0]
    assert planned["topology.weights"].tolist() == ["uniform", "samples"] * 2


def test_single_runs_are_compared_by_what_they_differ_in():
    options = {"threads": 1, "cell": "a"}
    ids = [
        log_run(seed=0, **{"privacy.epsilon": 1.0}, **options),
        log_run(seed=1, **{"privacy.epsilon": 2.0, "threads": 2, "cell": "b"}),
        log_run("hfl", **{"privacy.epsilon": 4.0, "training.rounds": 7}, **options),
        log_run(status="FAILED", **{"model.name": "svm"}),
    ]
    # What the algorithms differ in tells them apart already; hfl has one run.
    assert differing(ids) == ("privacy.epsilon",)
    assert list(load_runs(ids, differing(ids))["privacy.epsilon"]) == [1.0, 2.0, 4.0]


def test_seeds_that_differ_in_more_than_is_compared_are_refused_but_algorithms_may():
    ids = [log_run(seed=seed, **{"training.rounds": rounds}) for seed, rounds in ((0, 60), (1, 80))]
    with pytest.raises(InputError, match=r"training.rounds = \['60', '80'\].*m2fdp"):
        load_runs(ids)
    assert load_runs(ids, ["training.rounds"])["training.rounds"].tolist() == [60, 80]
    ids = [log_run(name, **{"training.rounds": n}) for name, n in (("hfl", 60), ("m2fdp", 80))]
    assert len(load_runs(ids)) == 2
