"""Reconstruction: exact where it must be, and judged by numbers that others make, too; and what an
attacker knows: labels from the last layer, and the message that images would make."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from tests.builders import experiment_of

from m2fdp.adversaries.inversion import Knowledge, Message, labels_by_rule, message_of, sought_in
from m2fdp.adversaries.reconstruction import Kept, labels_right, matched, psnr, ssim
from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import build_model

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


# What an attacker knows.

SHAPE = (1, 8, 8)


def message_with(devices, shares):
    nothing = torch.zeros(650)
    return Message("a sum", np.array(devices), np.array(shares), nothing, nothing, 1, 0.5)


def knowledge_of(sizes, model="softmax", **norms):
    built = build_model(ModelConfig(name=model), SHAPE, 10, seed=0)
    return Knowledge(built, SHAPE, 10, np.array(sizes), **norms)


@pytest.mark.parametrize("labels", [[3], [3, 5], [5, 5], [1, 4, 4], [0, 1, 2, 3]])
@pytest.mark.parametrize("model", ["softmax", "lenet", "dense"])
def test_labels_are_read_off(labels, model):
    knowledge = knowledge_of([1] * len(labels), model)
    images = torch.rand(len(labels), *SHAPE, generator=torch.Generator().manual_seed(1))
    message = message_with(range(len(labels)), [1.0] * len(labels))
    sought = sought_in(message, knowledge, len(labels))
    start = knowledge.model.initial_vector().double()
    made = message_of(images.double(), torch.eye(10).double()[labels], knowledge, sought, start)
    message = replace(message, start=start.float(), update=-0.5 * len(labels) * made.float())
    assert sorted(labels_by_rule(message, knowledge, len(labels))) == labels


def test_images_are_dealt_in_turn_and_no_more_than_there_are():
    message, knowledge = message_with([1, 2], [0.25, 0.75]), knowledge_of([9, 1, 3])
    sought = sought_in(message, knowledge, 3)
    assert sought.owners.tolist() == [0, 1, 1]
    assert sought.weights.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]
    assert sought.parts.tolist() == [0.25, 0.75]
    assert len(sought_in(message, knowledge, 60)) == 4
    assert sought_in(message, knowledge, 1).parts.tolist() == [1.0]


def test_a_message_is_clipped_as_devices_clip():
    message = message_with([0, 1], [0.5, 0.5])
    images = torch.rand(2, *SHAPE, dtype=torch.float64)
    labels = torch.eye(10).double()[[3, 7]]
    plain = knowledge_of([1, 1])
    start = plain.model.initial_vector().double()
    gradients = []
    for image, label in zip(images, (3, 7), strict=True):
        error = 0.1 - torch.eye(10).double()[label]
        gradients.append(torch.outer(error, image.flatten()).flatten())
    sought = sought_in(message, plain, 2)
    assert torch.allclose(
        message_of(images, labels, plain, sought, start), sum(gradients) / 2, atol=1e-9
    )
    for norms in ({"record_norm": 0.3}, {"device_norm": 0.3}):
        clipped = sum(0.3 * each / each.norm() for each in gradients) / 2
        found = message_of(images, labels, knowledge_of([1, 1], **norms), sought, start)
        assert torch.allclose(found, clipped, atol=1e-9)


def test_a_model_without_linear_last_layer_is_refused():
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 10, 8), torch.nn.Flatten())
    model = build_model(ModelConfig(), SHAPE, 10, seed=0)
    odd = type(model)("odd", module, model.loss, linear=False)
    with pytest.raises(InputError, match="model.name = 'odd': has no linear last layer"):
        labels_by_rule(message_with([0], [1.0]), Knowledge(odd, SHAPE, 10, np.array([1])), 1)


def test_epsilon_beside_a_message_is_the_ledgers_of_the_worst_device_in_it():
    attack = {"method": "analytic", "observer": "cloud", "round": 2}
    run = {"topology": {"fanouts": [2, 2], "trust": {"untrusted": ["server-1-1"]}}}
    experiment = experiment_of(run, {"attack": attack, "training.rounds": 2})
    record = experiment.attack().record
    ledger = experiment.calibrate().mechanism.ledger
    for number, message in enumerate(record["messages"]):
        inside = {2 * number, 2 * number + 1}
        lines = [x for x in ledger.lines if x.kind == "cloud" and inside & {*x.position.members}]
        assert message["epsilon"] == max(ledger.epsilon(line, 2) for line in lines)
