"""LiRA where the answer is known, and against the ledger; and counts to bounds, against values
worked by hand and against exact coverage.

All seeds are fixed, so each of these tests either fails always or never; the rates in the comments
say how likely a correct build was to fail when the seeds were chosen.
"""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import beta, binom
from tests.builders import experiment_of

from m2fdp.adversaries.attacks import attack_run
from m2fdp.adversaries.membership import (
    Rule,
    at_least,
    at_most,
    choose_rule,
    confidences,
    deal_targets,
    epsilon_bound,
    judge,
    power_of,
    scores_of,
)
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


# Counts to bounds.


def test_probabilities_by_hand():
    # No hits in n: (1 - p)^n = alpha. All hits: p^n = alpha.
    assert at_least(0, 20, 0.05) == 0.0
    assert at_most(0, 20, 0.05) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert at_least(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20))
    assert at_most(20, 20, 0.05) == 1.0
    # The published two-sided 95 % interval of 5 in 10.
    assert at_least(5, 10, 0.025) == pytest.approx(0.1871, abs=1e-4)
    assert at_most(5, 10, 0.025) == pytest.approx(0.8129, abs=1e-4)


@pytest.mark.parametrize("trials", [20, 500])
def test_probabilities_are_quantiles_of_the_beta_law(trials):
    # The closed form of the bounds; scipy finds them as roots of the binomial law.
    for hits in range(1, trials, 7):
        low = beta.ppf(0.025, hits, trials - hits + 1)
        high = beta.ppf(0.975, hits + 1, trials - hits)
        assert at_least(hits, trials, 0.025) == pytest.approx(low, rel=1e-9)
        assert at_most(hits, trials, 0.025) == pytest.approx(high, rel=1e-9)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.97])
def test_each_bound_is_wrong_at_most_as_often_as_stated(p):
    hits = np.arange(41)
    low = np.array([at_least(int(k), 40, 0.025) for k in hits])
    high = np.array([at_most(int(k), 40, 0.025) for k in hits])
    chances = binom.pmf(hits, 40, p)
    assert chances[low > p].sum() <= 0.025
    assert chances[high < p].sum() <= 0.025


def test_the_bound_by_hand():
    absent, present = np.zeros(50), np.ones(50)
    low, high = 0.025 ** (1 / 50), 1 - 0.025 ** (1 / 50)
    expected = log((low - 0.01) / high)
    assert epsilon_bound(Rule(True, 0.5), absent, present, 0.01, 0.025) == pytest.approx(expected)
    assert epsilon_bound(Rule(False, 0.5), absent, present, 0.01, 0.025) == pytest.approx(expected)
    # A test that errs always shows nothing, and so does one that delta explains.
    assert epsilon_bound(Rule(True, 0.5), present, absent, 0.01, 0.025) == 0
    assert epsilon_bound(Rule(True, 0.5), absent, present, 0.95, 0.025) == 0


def test_the_rule_takes_the_direction_that_shows_more():
    rng = np.random.default_rng(0)
    absent = rng.normal(0, 0.1, 1000)
    # Half of the time the record leaves no trace: its absence can't be seen, its presence can.
    present = np.where(rng.random(1000) < 0.5, absent, 5.0)
    rule = choose_rule(absent, present, 1e-5, 0.025)
    assert rule.present
    assert 0.1 < rule.threshold < 5
    mirrored = choose_rule(-present, -absent, 1e-5, 0.025)
    assert not mirrored.present
