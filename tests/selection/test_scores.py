"""Noised counts of what a model gets right: how much noise, who is told, and an attack."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2
from tests.adversaries.copies import shown_by

from m2fdp import Experiment, load_config
from m2fdp.core.streams import KeyedStreams
from m2fdp.core.topology.network import heads_of
from m2fdp.selection.scores import score, score_deviation

HOLDING = {
    "topology.fanouts": [2, 3],
    "training.rounds": 2,
    "partition.held_out_by": "devices",
    "partition.validation_fraction": 0.2,
    "training.evaluate_on": "validation",
}


def experiment_of(*layers, seed=0):
    return Experiment.from_config(load_config(HOLDING, *layers, seed=seed))


@pytest.mark.parametrize(("ratio", "n_heads"), [(1.0, 2), (0.5, 4), (0.0, 6)])
def test_every_head_adds_its_own_noise_once(ratio, n_heads):
    network = experiment_of({"topology.trust.ratios": [ratio]}).network
    assert len(np.unique(heads_of(network), axis=0)) == n_heads
    right, holders = np.arange(60) % 3 > 0, np.arange(60) % 6
    scores = np.array(
        [score(right, holders, network, 5.0, KeyedStreams(seed)) for seed in range(2000)]
    )
    deviation = 5.0 * n_heads**0.5 / 60
    # Each fails a sound build with probability at most 1e-4; the seeds are fixed.
    assert abs(scores.mean() - 40 / 60) < 4 * deviation / 2000**0.5
    low, high = chi2.ppf([5e-5, 1 - 5e-5], 1999) / 1999
    assert low < scores.var(ddof=1) / deviation**2 < high


def test_the_ledger_has_a_line_about_held_out_records_for_each_about_the_others():
    experiment = experiment_of()
    table = experiment.ledger()
    of_scores = table["sees"].str.contains("held-out records")
    trained, counted = table[~of_scores], table[of_scores]
    assert trained["observer"].tolist() == counted["observer"].tolist()
    assert (counted["releases"] == 1).all() and (counted["largest_shift"] == 1.0).all()
    read = counted[counted["distrusted"]]
    assert read["noise"].to_numpy() == pytest.approx(score_deviation(experiment.config.privacy))
    assert (read["epsilon"] <= 4.0).all() and (read["epsilon"] > 3.99).all()
    # Who reads gradients in clear reads counts in clear.
    assert (np.isinf(counted["epsilon"]).to_numpy() == np.isinf(trained["epsilon"])).all()
    summary = experiment.summary()
    assert summary["epsilon_verified"] <= 4.0 and summary["records_in_clear"]["validation"] == 0
    assert any("devices hold out" in line for line in summary["outside_the_promise"])


def test_a_held_out_record_gets_another_score_its_own_noise():
    experiment = experiment_of({"training.rounds": 1})
    trained = experiment.train()
    samples = experiment.held_out
    changed = experiment.dataset
    images = changed.images.copy()
    images[samples[0]] = 1 - images[samples[0]]
    other = Experiment.from_config(experiment.config, replace(changed, images=images))
    same = [
        each.score(trained.state_dict)
        for each in (experiment, experiment_of({"training.rounds": 1}))
    ]
    assert same[0] == same[1]
    # The difference of scores is not that of the counts, a multiple of 1 / n.
    difference = (other.score(trained.state_dict) - same[0]) * len(samples)
    assert abs(difference - round(difference)) > 1e-6


def test_an_attack_on_scores_stays_below_the_target_and_beats_a_third_of_the_noise():
    network = experiment_of({"topology.fanouts": [1, 1], "topology.trust.ratios": [1.0]}).network
    privacy = load_config({"privacy.epsilon": 2.0, "privacy.delta": 1e-2}).privacy
    right, holders = np.zeros(20, bool), np.zeros(20, dtype=np.int64)
    moved = right.copy()
    moved[0] = True

    def lower_bound(deviation, n=6000):
        worlds = (
            np.array([score(each, holders, network, deviation, KeyedStreams(s)) for s in seeds])
            for each, seeds in ((right, range(n)), (moved, range(n, 2 * n)))
        )
        return shown_by(*worlds, 1e-2, 0.99)

    # Wrong with probability at most 0.01 of a sound build; the seeds are fixed.
    assert lower_bound(score_deviation(privacy)) <= 2.0
    assert lower_bound(score_deviation(privacy) / 3, n=600) > 2.0


def test_runs_whose_cloud_holds_the_records_have_no_score():
    cloud = load_config({"partition.validation_fraction": 0.2, "training.rounds": 1})
    experiment = Experiment.from_config(cloud)
    assert experiment.score(experiment.train().state_dict) is None
