"""LiRA where the answer is known, and against the ledger.

All seeds are fixed, so each of these tests either fails always or never; the rates in the comments
say how likely a correct build was to fail when the seeds were chosen.
"""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from tests.builders import experiment_of

from m2fdp.adversaries.attacks import attack_run
from m2fdp.adversaries.membership import confidences, deal_targets, judge, power_of, scores_of
from m2fdp.core.config import ModelConfig
from m2fdp.core.models.registry import build_model

SMALL = {
    "topology": {"fanouts": [2, 5], "trust": {"ratios": [1.0]}},
    "partition": {"scheme": "iid", "samples_per_device": 20},
    "training": {"rounds": 30, "local_steps": 1, "local_aggregation": None, "learning_rate": 2.0},
    "privacy": {"epsilon": 1.0, "clipping_norm": 0.5},
    "threat": {"distrusted": ["servers", "cloud", "far_devices", "public"]},
    "attack": {"method": "lira", "shadows": 32},
}


def toy(shift, shadows=64, targets=400, seed=0):
    """Confidences that are moved by `shift` standard deviations where a record is a member."""
    rng = np.random.default_rng(seed)
    members = deal_targets(shadows, targets, rng)
    own = rng.standard_normal(targets)  # how easy each record is
    return own + shift * members + rng.standard_normal(members.shape), members


def everything(rates):
    return np.ones_like(rates)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_the_area_is_that_of_two_gaussians(shift):
    seen, members = toy(shift)
    found = judge(scores_of(seen, members), members[32:], everything, 1e-5, 0.95)
    # 6,400 guesses of each kind: a deviation of 0.005; fitted means cost some of the area.
    assert found["auc"] <= ndtr(shift / np.sqrt(2)) + 0.02
    assert found["auc"] >= ndtr(0.9 * shift / np.sqrt(2)) - 0.02
    at_one_percent = ndtr(shift - 2.326)
    assert found["tpr_at_0.01"] == pytest.approx(at_one_percent, abs=0.01 + 0.3 * at_one_percent)


def test_a_randomised_response_is_bounded_close_to_its_epsilon():
    """A score that names members with chance e/(1 + e) is worth epsilon = 1, and shows most."""
    rng = np.random.default_rng(1)
    members = rng.random((32, 1000)) < 0.5
    truthful = rng.random(members.shape) < exp(1) / (1 + exp(1))
    scores = np.where(truthful, members, ~members) + 0.0
    found = judge(scores, members, everything, 1e-5, 0.95)
    # The bound is wrong with probability 0.05.
    assert 0.9 < found["epsilon_lower"] <= 1.0


def test_every_target_is_in_half_of_every_quarter():
    members = deal_targets(32, 50, np.random.default_rng(0))
    for quarter in np.split(members, 4):
        assert (quarter.sum(0) == 4).all()
    assert len({tuple(row) for row in members}) == 32


def test_confidence_is_the_logit_of_the_labels_probability():
    model = build_model(ModelConfig(), (1, 2, 2), 3, seed=0)
    weights, features = torch.linspace(-1, 1, 12), torch.rand(5, 1, 2, 2)
    labels = torch.tensor([0, 1, 2, 0, 1])
    chances = model.scores(weights, features).softmax(1).gather(1, labels[:, None])[:, 0].numpy()
    expected = np.log(chances / (1 - chances))
    assert confidences(model, weights, features, labels) == pytest.approx(expected, abs=1e-5)


def test_the_power_that_a_ledger_allows_is_a_gaussians():
    """Full batches: the curve of one Gaussian (Dong et al. 2022) is below, and within a tenth."""
    experiment = experiment_of(SMALL, {"privacy.epsilon": 2.0})
    ledger = experiment.calibrate().mechanism.ledger
    (line, *_) = (line for line in ledger.lines if line.kind == "public")
    ((law, count),) = ledger.composition(line, 30)
    mu = law.largest * np.sqrt(count)
    rates = np.array([0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 1.0])
    exact = ndtr(np.array([-np.inf, -3.0902, -2.3263, -1.2816, 0.0, 1.2816, np.inf]) + mu)
    power = power_of(ledger, ["public"], 30)(rates)
    assert (power >= exact - 1e-6).all()
    assert (power <= exact + 0.1).all()
    assert power[2] < 0.05


def test_without_privacy_members_are_told_and_epsilon_is_infinite():
    record = experiment_of(SMALL, {"algorithm": "hfl"}).attack().record
    for found in record["memberships"]:
        assert found["auc"] > 0.55
        assert found["tpr_most_at_0.01"] == found["tpr_most_at_0.001"] == 1.0
    assert record["metrics"]["epsilon/public"] == "inf"


def test_nothing_passes_the_ledger_and_too_little_noise_is_told_apart_not_refuted():
    """A claimed epsilon of 1, and a quarter of its noise. AUCs of 3,200 guesses of each kind
    deviate by 0.007, so that a correct build was to fail with probability below 1e-3. The quarter
    shows in the area, which stays below what epsilon = 1 allows: LiRA alone does not refute it."""
    experiment = experiment_of(SMALL)
    mechanism = experiment.calibrate().mechanism
    noise = mechanism.noise
    parts = tuple(part / 4 for part in noise.heads)
    quarter = replace(mechanism, noise=replace(noise, steps=noise.steps / 4, heads=parts))
    honest = experiment.attack().record
    broken = attack_run(experiment, None, lambda done, total: None, quarter).record
    pairs = zip(honest["memberships"], broken["memberships"], strict=True)
    for found, less in pairs:
        assert 0.48 < found["auc"] < 0.53
        assert found["epsilon_lower"] <= 1.0
        assert 0.54 < less["auc"] < less["auc_most"]
    assert honest["metrics"]["room"] >= 0
    assert "proves nothing" in broken["note"]
    assert broken["metrics"]["epsilon/public"] == pytest.approx(1.0)


def test_a_score_that_passes_the_bound_is_reported():
    """A test that finds all members is more than epsilon = 1 allows."""
    rng = np.random.default_rng(2)
    members = rng.random((32, 200)) < 0.5

    def power(rates):
        return np.minimum(1.0, np.e * rates + 1e-5)

    assert judge(members + 0.0, members, power, 1e-5, 0.95)["room"] < -0.9
    blind = judge(rng.standard_normal(members.shape), members, power, 1e-5, 0.95)
    assert blind["room"] > 0
