"""Devices that join rounds by chance, in experiments: what is refused, and what runs say."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.builders import experiment_of

from m2fdp.core.algorithms import ALGORITHMS, Algorithm
from m2fdp.core.algorithms.m2fdp import M2FDP
from m2fdp.core.engine.minibatches import draw_participants
from m2fdp.core.errors import InputError
from m2fdp.core.topology.network import Participation

BY_CHANCE = {"training": {"participation": 0.3, "rounds": 12, "local_aggregation": None}}
UPLOAD = {"privacy": {"mechanism": "upload", "unit": "device", "epsilon": 8}}
TRUSTED = {"topology": {"fanouts": [4, 6], "trust": {"ratios": [1.0]}}}
FIXED = {"training.estimator": "fixed"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"topology.weights": "samples"}, "'samples': is not defined for devices that join by"),
        (
            {"training.participation": 1e-4, "privacy.delta": 0.005},
            "the chance that 12 rounds at rate 0.0001 ever draw",
        ),
    ],
)
def test_what_is_refused(changes, line):
    with pytest.raises(InputError, match=line) as caught:
        experiment_of(TRUSTED, BY_CHANCE, UPLOAD, changes).check()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", [0, 5])
def test_the_ledger_counts_the_rounds_that_training_draws(seed):
    experiment = experiment_of(TRUSTED, BY_CHANCE, UPLOAD, {"seed": seed})
    simulation = experiment.simulation()
    drawn = np.stack(
        [
            draw_participants(experiment.network, simulation.randomness.sampling, round_)
            for round_ in range(1, 13)
        ]
    )
    ledger = experiment.calibrate().mechanism.ledger
    assert np.array_equal(ledger.lines[0].account.attendance.joins, drawn)
    said = experiment.summary()
    most = int(drawn.sum(axis=0).max())
    assert said["participation"] == {
        "chance": 0.3,
        "rounds_expected": pytest.approx(3.6),
        "rounds_most": most,
    }
    table = experiment.ledger().set_index("kind")
    assert table.loc[["cloud", "siblings"], "releases"].tolist() == [12, most]
    assert any("who joins a round is known to" in line for line in said["assumptions"])
    assert any("joins the same rounds" in line for line in said["assumptions"])


@pytest.mark.parametrize("algorithm", ["hfl", "hfl_dp", "m2fdp", "pedpfl", "hdp", "cdp"])
@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_every_algorithm_trains(algorithm, mechanism):
    changes = {"algorithm": algorithm, "privacy": {"mechanism": mechanism, "epsilon": 1e5}}
    trained = experiment_of(TRUSTED, BY_CHANCE, UPLOAD, FIXED, changes).train()
    assert trained.accuracy > 0.5


SELDOM = {"topology.fanouts": [4, 2], "training.local_aggregation": None}


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
@pytest.mark.parametrize("algorithm", ["m2fdp", "hfl_dp", "hdp", "cdp", "pedpfl"])
@pytest.mark.parametrize(("chance", "rounds", "seed"), [(0.1, 5, 3), (0.05, 4, 1), (1e-3, 2, 0)])
def test_devices_that_never_join_release_nothing_and_cost_nothing(
    mechanism, algorithm, chance, rounds, seed
):
    """Where nobody joins at all (the last case), nothing is there to be calibrated for."""
    training = {"training.participation": chance, "training.rounds": rounds, "seed": seed}
    changes = {"algorithm": algorithm, "privacy.mechanism": mechanism}
    experiment = experiment_of(SELDOM, training, changes)
    mechanism = experiment.calibrate().mechanism
    joined = mechanism.ledger.lines[0].account.attendance.joins.sum(axis=0)
    assert (joined == 0).any()
    table = experiment.ledger()
    # A device's line counts what the most exposed of its position releases.
    assert table.loc[table["releases"] == 0, "epsilon"].eq(0).all()
    assert experiment.epsilon_over_rounds().drop(columns="round").notna().all(axis=None)
    verified = mechanism.epsilon(rounds)
    assert verified == 0 if not joined.any() else 0 < verified <= experiment.config.privacy.epsilon
    heads = experiment.plan.network.noise
    of_steps, sent = mechanism.noise.heads, mechanism.noise.messages
    for planned, stepped, message in zip(heads, of_steps, sent, strict=True):
        assert np.all((planned == 0) | (stepped > 0) | (message > 0)), "noise, were it drawn"
    assert experiment.train().rounds == rounds


@pytest.mark.parametrize("rounds", [30, 5, 1])
def test_no_seed_is_refused_for_who_happens_to_join(rounds):
    for seed in range(8):
        training = {"training.participation": 0.1, "training.rounds": rounds, "seed": seed}
        assert 0 < experiment_of(training).calibrate().mechanism.epsilon(rounds) <= 4


def test_what_is_in_clear_is_refused_where_somebody_joins_and_there_alone():
    changes = {"threat.open_links": ["uplinks"], "privacy.mechanism": "upload"}
    rare = {"training.rounds": 1, "training.participation": 1e-3}
    assert experiment_of(TRUSTED, SELDOM, changes, rare).calibrate().mechanism.epsilon(1) == 0
    with pytest.raises(InputError, match="can't be met for eavesdropper on uplinks"):
        experiment_of(TRUSTED, SELDOM, changes, rare, BY_CHANCE).calibrate()


def test_a_network_s_own_chance_is_what_a_run_tells(monkeypatch):
    """A plan that has devices join by chance itself is what the key makes of the same plan."""

    def plan(given):
        network = M2FDP.plan(given).network
        everybody = np.ones(network.tree.n_devices)
        joined = replace(network, participation=Participation(0.3, everybody))
        return replace(M2FDP.plan(given), network=joined)

    monkeypatch.setitem(ALGORITHMS, "own", Algorithm("own", "Own", "method", plan))
    without = BY_CHANCE["training"] | {"participation": None}
    for estimator in ({}, FIXED):
        by_key = experiment_of(TRUSTED, BY_CHANCE, UPLOAD, estimator)
        planned = experiment_of(
            TRUSTED, {"training": without, "algorithm": "own"}, UPLOAD, estimator
        )
        pd.testing.assert_frame_equal(planned.ledger(), by_key.ledger())
        told, expected = planned.summary(), by_key.summary()
        assert told["participation"] == expected["participation"]
        with pytest.raises(InputError, match=r"0\.3 \(algorithm: own\)': a pipeline of"):
            planned.audit()
    # One step draws a record at rate 1/60: with chance 0.3 delta pays for it, without it does not.
    one_step = {"rounds": 1, "local_steps": 1, "batch_size": 1}
    much = {"privacy.delta": 0.008, "training": one_step}
    for changes in (BY_CHANCE, {"training": without, "algorithm": "own"}):
        with pytest.raises(InputError, match="the chance that 1 rounds at rate"):
            experiment_of(TRUSTED, changes, much).check()
