"""Reconstruction: exact where it must be, and judged by numbers that others make, too."""

from math import inf

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from tests.builders import experiment_of

from m2fdp.adversaries.reconstruction import Kept, labels_right, matched, psnr, ssim

ALONE = {
    "topology": {"fanouts": [2, 2], "trust": {"ratios": [0.0]}},
    "partition": {"scheme": "dirichlet", "samples_per_device": 1},
    "training": {"rounds": 2, "local_steps": 1, "local_aggregation": None, "learning_rate": 0.5},
    "privacy": {"mechanism": "upload", "unit": "device", "clipping_norm": 100.0},
    "attack": {"observer": "servers"},
}
NO_NOISE = {"algorithm": "hfl"}


@pytest.mark.parametrize("model", ["softmax", "logistic", "svm", "dense"])
@pytest.mark.parametrize("round_", [1, 2])
def test_a_linear_first_layer_gives_its_record_away(model, round_):
    attack = {"attack.method": "analytic", "model.name": model, "attack.round": round_}
    record = experiment_of(ALONE, NO_NOISE, attack).attack().record
    for message in record["messages"]:
        assert message["psnr"] > 60, message["sees"]
        assert message["labels_right"] == 1.0
        assert message["epsilon"] == "inf"


def test_a_clipped_message_gives_it_away_too():
    attack = {"attack.method": "analytic", "algorithm": "ldp", "privacy.clipping_norm": 0.1}
    noise = {"privacy.calibration": "multiplier", "privacy.noise_multiplier": 1e-7}
    record = experiment_of(ALONE, attack, noise).attack().record
    # The brightness is lost, not the image.
    assert all(message["psnr"] > 30 for message in record["messages"])
    assert all(message["epsilon"] > 1e12 for message in record["messages"])


@pytest.mark.parametrize(
    "method", ["idlg", "inverting", pytest.param("dlg", marks=pytest.mark.full)]
)
def test_searches_find_the_record_of_a_convolutional_net(method):
    attack = {"attack": {"method": method, "messages": 1, "restarts": 2, "iterations": 100}}
    record = experiment_of(ALONE, NO_NOISE, attack, {"model.name": "lenet"}).attack().record
    (message,) = record["messages"]
    assert message["psnr"] > 30
    assert message["ssim"] > 0.95
    assert message["psnr_blind"] < 20


def test_at_a_verified_epsilon_nothing_is_found_and_epsilon_stands_beside_it():
    attack = {"algorithm": "ldp", "attack.method": "analytic", "privacy.epsilon": 1.0}
    record = experiment_of(ALONE, attack).attack().record
    for message in record["messages"]:
        assert message["psnr"] < message["psnr_blind"]
        assert message["epsilon"] <= record["epsilon_verified"] <= 1.0
    assert "A failed attack proves nothing" in record["note"]


def test_psnr_and_ssim_are_those_of_others():
    rng = np.random.default_rng(0)
    truth = rng.random((3, 28, 28))
    image = np.clip(truth + 0.1 * rng.standard_normal(truth.shape), 0, 1)
    ours = torch.from_numpy(image), torch.from_numpy(truth)
    assert psnr(*ours) == pytest.approx(10 * np.log10(1 / np.mean((image - truth) ** 2)))
    assert psnr(ours[0], ours[0]) == inf
    # As scikit-image's structural_similarity computes it (gaussian_weights, data_range=1).
    found = []
    for x, y in zip(image, truth, strict=True):

        def mean(values):
            return gaussian_filter(values, 1.5, truncate=3.5)

        mx, my = mean(x), mean(y)
        vx, vy, both = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
        top = (2 * mx * my + 1e-4) * (2 * both + 9e-4)
        found.append((top / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))[5:-5, 5:-5].mean())
    assert ssim(*ours) == pytest.approx(np.mean(found), abs=1e-6)
    assert ssim(ours[0], ours[0]) == pytest.approx(1.0)
    assert ssim(torch.zeros(1, 8, 8), torch.ones(1, 8, 8)) < 0.01


def test_images_are_matched_to_different_truths():
    truths = torch.arange(4.0).view(4, 1, 1, 1) / 4
    images = torch.tensor([0.3, 0.26]).view(2, 1, 1, 1)
    assert sorted(matched(images, truths).tolist()) == [1, 2]
    assert labels_right([1, 1, 2], [1, 2, 2]) == pytest.approx(2 / 3)


def test_an_attack_that_is_cut_off_goes_on_to_the_same_bits(tmp_path):
    attack = {"attack": {"messages": 2, "restarts": 2, "iterations": 20}, "model.name": "softmax"}
    whole = experiment_of(ALONE, NO_NOISE, attack).attack().record

    def cut(done, total):
        assert total == 4
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment_of(ALONE, NO_NOISE, attack).attack(tmp_path, cut)
    kept = sorted(tmp_path.glob("*.npz"))
    assert len(kept) == 3
    kept[0].write_bytes(b"damaged")
    again = {file: file.stat().st_mtime_ns for file in kept}
    told = []

    def keep_count(done, total):
        told.append(done)
        if done == 4:
            unchanged = [file for file, time in again.items() if file.stat().st_mtime_ns == time]
            assert len(unchanged) == 2  # all but the damaged one were read

    assert experiment_of(ALONE, NO_NOISE, attack).attack(tmp_path, keep_count).record == whole
    assert told[-1] == 4
    assert not list(tmp_path.glob("*.npz"))  # the next attack starts anew


def test_what_is_kept_belongs_to_one_configuration(tmp_path):
    def result(value):
        return lambda: {"value": np.array(value)}

    for key, value in ((b"one", 1.0), (b"another", 2.0)):
        assert Kept(tmp_path, key).get("start-0", result(value))["value"] == value
    assert Kept(tmp_path, b"one").get("start-0", result(3.0))["value"] == 1.0
    assert Kept(tmp_path, b"one").get("start-0", result(3.0), b"other")["value"] == 3.0
    assert Kept(None, b"one").get("start-0", result(4.0))["value"] == 4.0
