"""Devices that join rounds by chance, in experiments: what is refused, and what runs say."""

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp.errors import InputError
from m2fdp.simulation.sampling import draw_participants

BY_CHANCE = {"training": {"participation": 0.3, "rounds": 12, "local_aggregation": None}}
UPLOAD = {"privacy": {"mechanism": "upload", "unit": "device", "epsilon": 8}}
TRUSTED = {"topology": {"fanouts": [4, 6], "trust": {"ratios": [1.0]}}}
FIXED = {"training.estimator": "fixed"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"topology.weights": "samples"},
            "topology.weights = 'samples': is not defined for devices that join by chance",
        ),
        (
            {
                "training": {
                    "participation": None,
                    "local_aggregation": {1: 2},
                    **{"estimator": "fixed"},
                }
            },
            "training.local_aggregation = 1: is not proven together with training.estimator",
        ),
        (
            {"training.participation": 1e-4, "privacy.delta": 0.005},
            "the chance that 12 rounds at rate 0.0001 ever draw",
        ),
    ],
)
def test_what_is_refused(changes, line):
    with pytest.raises(InputError) as caught:
        experiment_of(TRUSTED, BY_CHANCE, UPLOAD, changes).check()
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{}, {"training": {"participation": None}, **FIXED}])
def test_audit_and_bound_are_for_rounds_that_are_all_alike(changes):
    experiment = experiment_of(TRUSTED, BY_CHANCE, UPLOAD, changes)
    for refused in (experiment.audit, experiment.measure, experiment.bound):
        with pytest.raises(InputError, match="audit, bound and attack are made for rounds that"):
            refused()


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
    assert np.array_equal(ledger.attendance, drawn)
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


def test_entropy_is_not_foreseen():
    changes = {"privacy.secure_rng": True, "threat.distrusted": ["siblings"]}
    experiment = experiment_of(TRUSTED, BY_CHANCE, UPLOAD, changes)
    assert experiment.calibrate().mechanism.ledger.attendance is None
    assert experiment.ledger().set_index("kind").loc["siblings", "releases"] == 12


@pytest.mark.parametrize("algorithm", ["hfl", "hfl_dp", "m2fdp", "pedpfl", "hdp", "cdp"])
@pytest.mark.parametrize("mechanism", ["upload", "gradient"])
def test_every_algorithm_trains(algorithm, mechanism):
    changes = {"algorithm": algorithm, "privacy": {"mechanism": mechanism, "epsilon": 1e5}}
    trained = experiment_of(TRUSTED, BY_CHANCE, UPLOAD, FIXED, changes).train()
    assert trained.accuracy > 0.5


def test_all_devices_by_chance_are_all_devices():
    """At q = 1 the fixed estimator with equal weights is the mean, and nothing else changes."""
    results = [
        experiment_of(TRUSTED, BY_CHANCE, UPLOAD, {"algorithm": "hfl"}, changes).train()
        for changes in (
            {"training.participation": 1.0},
            {"training.participation": None},
            {"training.participation": None, **FIXED},
        )
    ]
    assert len({result.accuracy for result in results}) == 1
    assert max(result.loss for result in results) == pytest.approx(
        min(result.loss for result in results), rel=1e-6
    )


def test_a_cap_weighs_devices_by_their_records():
    changes = {"training.estimator": "fixed", "training.example_cap": 60}
    experiment = experiment_of(
        TRUSTED, BY_CHANCE, UPLOAD, changes, {"partition.scheme": "quantity", "partition.alpha": 3}
    )
    caps = np.minimum(experiment.samples.sizes / 60, 1)
    assert caps.min() < 0.8 < 1.0 == caps.max()
    assert experiment.network.participation.caps == pytest.approx(caps)
    zones = experiment.network.tree.parents[-1]
    expected = caps / (0.3 * np.bincount(zones, weights=caps)[zones])
    assert experiment.network.weights[-1] == pytest.approx(expected)
