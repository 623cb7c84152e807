"""A mechanism in one file beside a plain loop of it, and what it is worth."""

from math import sqrt

import numpy as np
import pytest
from tests.builders import experiment_of, last_state
from tests.core.privacy.own_mechanism import PART

from m2fdp.core.engine.noise import standard_normals
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.accounting import epsilon, subsampled

OWN = "tests.core.privacy.own_mechanism"
STAR = {
    "algorithm": "hfl_dp",
    "topology.fanouts": [4],
    "topology.trust.ratios": [],
    "partition.samples_per_device": 30,
    "model.name": "softmax",
    "training.rounds": 3,
    "training.local_steps": 2,
    "training.local_aggregation": None,
    "training.batch_size": None,
    "training.learning_rate": 0.5,
    "privacy.mechanism": f"{OWN}:QUIETER",
    "privacy.delta": 0.01,
    "privacy.clipping_norm": 0.5,
    "threads": 1,
}


def clipped_gradients(w, x, labels, norm):
    """The sum of records' gradients of the cross-entropy of x w, each clipped: (64, 10)."""
    total = np.zeros_like(w)
    for record, label in zip(x, labels, strict=True):
        scores = record @ w
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        chances[label] -= 1
        gradient = np.outer(record, chances)
        total += gradient * min(1.0, norm / np.linalg.norm(gradient))
    return total


def reference(experiment, draw):
    """Every device's clipped gradients and noise, one after the other, in float64.

    Args:
        draw: of round, step and device, standard normal numbers (64, 10).
    """
    shards, config = experiment.shards(), experiment.config
    deviations = experiment.calibrate().mechanism.noise.steps
    ends = np.cumsum(shards.sizes)
    x = shards.features.flatten(1).double().numpy()
    model = np.zeros((64, 10))
    for round_ in (1, 2, 3):
        models = []
        for device, (end, size) in enumerate(zip(ends, shards.sizes, strict=True)):
            records = slice(end - size, end)
            y = model.copy()
            for step in (1, 2):
                gradient = clipped_gradients(y, x[records], shards.labels[records], 0.5) / size
                fresh = deviations[device] * draw(round_, step, device)
                y = y - config.training.learning_rate * (gradient - fresh)
            models.append(y)
        model = np.mean(models, 0)
    return model


def test_it_trains_what_a_plain_loop_trains():
    experiment = experiment_of(STAR)
    process = experiment.process()
    simulation = process.simulation

    def draw(round_, step, device):
        stream = simulation.randomness.noise.generator("step-noise", round_, step, 1)
        like = simulation.shards.features.new_empty(640)
        drawn = standard_normals(stream, np.array([device]), like).double().numpy()
        return drawn.reshape(10, 64).T

    # Where somebody listens, no two noises are drawn as one.
    state = last_state(process, experiment.run_plan.rounds, lambda *heard: None)
    trained = state.weights.double().numpy()
    np.testing.assert_allclose(trained.reshape(10, 64).T, reference(experiment, draw), atol=1e-5)


def test_its_ledger_is_the_closed_form_of_widened_steps():
    ledger = experiment_of(STAR, {"training.batch_size": 5}).calibrate().mechanism.ledger
    noise = min(line.deviation for line in ledger.lines)
    steps = 3 * 2
    expected = epsilon(((subsampled(1.0, sqrt(steps) / PART / noise), 1),), 0.01)
    assert ledger.verified(3) == pytest.approx(expected, rel=1e-9)
    assert 3.9 < expected <= 4.0


def test_epsilon_is_conditional_on_it():
    summary = experiment_of(STAR).summary()
    assert summary["guarantee"] == "conditional"
    (part,) = summary["own_code"]
    told = {"key": "privacy.mechanism", "part": "mechanism", "enforced": False}
    assert part.items() >= told.items()
    named = "tests/core/privacy/own_mechanism.py, the mechanism of privacy.mechanism="
    assert sum(line.startswith(named) for line in summary["assumptions"]) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy.mechanism": f"{OWN}:PART"}, "is no Mechanism but float"),
        ({"privacy.mechanism": f"{OWN}:NONE"}, "can't be imported"),
        ({"privacy.mechanism": "sum"}, "privacy.mechanism = 'sum': valid: 'gradient'"),
        ({"topology.fanouts": [2, 2], "topology.trust.ratios": [0.0]}, "is for stars"),
    ],
)
def test_what_it_can_not_be_is_one_line(changes, message):
    with pytest.raises(InputError) as caught:
        experiment_of(STAR, changes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_audit_stays_below_the_ledger_and_catches_a_careless_one():
    """Seeds are fixed; a correct build was to fail with a probability of 2.5 % a bound."""
    one_step = {"training.rounds": 8, "training.local_steps": 1, "privacy.epsilon": 1.0}
    (found,) = experiment_of(STAR, one_step, {"audit.repetitions": 3000}).audit().itertuples()
    assert 0.2 < found.epsilon_lower <= found.epsilon_upper <= 1.0
    careless = {"privacy.mechanism": f"{OWN}:CARELESS", "audit.repetitions": 300}
    (found,) = experiment_of(STAR, one_step, careless).audit().itertuples()
    assert found.epsilon_lower > found.epsilon_upper
