"""Global DP (G) as an experiment: digits, from configuration to model, ledger, audit, summary."""

import json

import numpy as np
import pytest
from tests.builders import digits, experiment_of

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset, of_unit_norm
from m2fdp.core.errors import InputError

G = {
    "algorithm": "global_dp",
    "topology.fanouts": [2, 4],
    "topology.trust.ratios": None,
    "partition.scheme": "iid",
    "training.batch_size": None,
    "training.rounds": 3,
    "training.local_steps": 4,
    "training.local_aggregation": {1: 2},
    "threads": 1,
    "privacy.mechanism": "weights",
    "privacy.calibration": "paper",
    "privacy.epsilon": 20.0,
    "privacy.epsilon_cloud": 25.0,
    "privacy.clipping_norm": 15.0,
}
ACCOUNTANT = {"privacy.calibration": "accountant", "privacy.epsilon_cloud": None}


def test_it_trains_and_shows_what_its_noise_is_worth():
    experiment = experiment_of(G)
    trained = experiment.train()
    assert trained.accuracy > 0.6
    told = json.loads(json.dumps(experiment.summary()))
    assert (told["epsilon_nominal"], told["epsilon_nominal_cloud"]) == (20, 25)
    assert told["epsilon_verified"] == trained.epsilon > 1e4
    assert told["drift"] == "none, models are clipped"
    assert any(line.endswith("the nominal 20 and 25") for line in experiment.warnings())
    table = experiment.ledger()
    assert set(table["kind"]) >= {"servers", "cloud", "siblings", "public", "uplinks", "downlinks"}
    assert table["distrusted"].sum() == 2
    assert np.isfinite(experiment.epsilon_over_rounds().to_numpy()).all()
    assert experiment.zones_table().empty


def test_the_accountants_noise_drowns_any_model_and_a_warning_says_so():
    experiment = experiment_of(G, ACCOUNTANT, {"privacy.epsilon": 1.0})
    assert experiment.summary()["epsilon_verified"] <= 1
    assert "epsilon_nominal_cloud" not in experiment.summary()
    (line,) = [line for line in experiment.warnings() if "no clipped model is longer" in line]
    length = experiment.calibrate().mechanism.noise.messages[2][0] * np.sqrt(640)
    assert f"{length:.3g} long" in line
    assert not any("no clipped model" in line for line in experiment_of(G).warnings())


def test_the_audit_finds_more_than_the_nominal_epsilon_of_one():
    one = {"privacy.epsilon": 1.0, "privacy.epsilon_cloud": 1.0, "audit.repetitions": 400}
    found = experiment_of(G, one).audit()
    assert (found["epsilon_lower"] > 1).all()
    assert (found["epsilon_lower"] <= found["epsilon_upper"]).all()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"algorithm": "pedpfl"}, "not for a tree of 1 tiers"),
        ({"training.proximal": 3.0, "training.learning_rate": 0.5}, "proximal"),
        ({"training.participants": 2}, "is for all devices in every round"),
        ({"secure_aggregation.layers": [2]}, "is for all devices in every round"),
        ({"algorithm": "cdp"}, "is for a cloud that is not trusted"),
    ],
)
def test_what_is_not_defined_is_one_line_before_anything_is_trained(changes, line):
    with pytest.raises(InputError) as refused:
        experiment_of(G, changes)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_algorithms_may_clip_models_too():
    """hfl_dp: devices add noise, and nobody else."""
    noise = experiment_of(G, {"algorithm": "hfl_dp"}).calibrate().mechanism.noise
    assert noise.messages[2].all() and noise.local_messages[2].all()
    assert not noise.messages[1].any() and not noise.messages[0].any()


def test_images_over_their_own_length():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 4, 4, 3)).astype(np.uint8)
    images[2] = 0
    dataset = Dataset("own", images, np.zeros(5, int), 4, 1)
    scaled = of_unit_norm(dataset)
    for image, before in zip(scaled.images, images, strict=True):
        length = np.linalg.norm(before.astype(float))
        assert image == pytest.approx(before / (length or 1), rel=1e-6)
    assert scaled.images.dtype == np.float32
    assert (images[2] == 0).all() and images.max() > 1  # what was given is as it was


def test_images_whose_squares_vanish_have_unit_norm_too():
    """Of 784 pixels of 2.6e-23 the squares are zero in float32: as long as it said they were, the
    "unit" inputs had norm 19, and what a controller takes beta from was wrong."""
    images = np.full((2, 28, 28, 1), 2.6e-23, dtype=np.float32)
    images[0, 0, 0] = 2.7e-23
    images[1] = 1e-44  # of few digits
    scaled = of_unit_norm(Dataset("own", images, np.zeros(2, int), 1, 1)).images.astype(float)
    assert np.linalg.norm(scaled.reshape(2, -1), axis=1) == pytest.approx(1.0, rel=1e-5)


def test_a_run_on_unit_norms_sees_them_and_no_other_does():
    experiment = experiment_of(G, {"dataset.scale": "unit_norm"})
    features = experiment.shards().features
    assert features.flatten(1).norm(dim=1).numpy() == pytest.approx(1.0, rel=1e-6)
    plain = experiment_of(G).shards().features
    assert plain.flatten(1).norm(dim=1).max() > 2
    assert experiment_of(G).inputs is digits()
    assert DatasetConfig().scale == "pixels"


def test_features_scale_by_themselves():
    with pytest.raises(InputError, match="dataset.scale = 'unit_norm': belongs to features.map"):
        experiment_of(G, {"dataset.scale": "unit_norm", "features.map": "scattering"})
