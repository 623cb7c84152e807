"""How the contrastive network learns: from which views, by which loss, and what is written."""

import sys

import numpy as np
import pytest
import torch
from tools.pretraining import Network, augmented, contrastive_loss, draw_views, train, write

from m2fdp.features import maps as contrastive
from m2fdp.features.maps import LAYERS, responses
from tools import pretraining


@pytest.fixture(scope="module")
def views():
    return draw_views(80, np.random.default_rng(0))


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(pretraining, "_BATCH", 16)
    monkeypatch.setattr(pretraining, "_WARM_UP", 1)


def test_views_of_a_drawing_are_more_alike_than_those_of_two(views):
    assert views.shape == (80, 6, 28, 28)
    assert views.dtype == torch.uint8
    pixels = views.flatten(2).float()
    assert pixels.amax(dim=2).min() > 0
    first, second = pixels[:, 0], pixels[:, 1]
    apart = (first - second).abs().mean(dim=1)
    assert apart.min() > 0
    assert apart.mean() < 0.8 * (first - second.roll(1, dims=0)).abs().mean()


def test_views_are_the_same_for_whoever_asks(views):
    assert torch.equal(views, draw_views(80, np.random.default_rng(0)))


def test_augmented_images_are_near_the_image_and_never_twice_the_same(views):
    images = views[:, 0][:, None] / 255
    first, second = (augmented(images, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert first.shape == images.shape
    apart = (first - second).abs().mean(dim=(1, 2, 3))
    assert apart.min() > 0
    assert apart.mean() < 0.8 * (first - second.roll(1, dims=0)).abs().mean()
    again = augmented(images, torch.Generator().manual_seed(0))
    assert torch.equal(first, again)


def test_the_loss_is_the_cross_entropy_of_finding_the_other_view():
    compared = torch.nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator()), dim=1)
    vectors = compared.double().numpy()
    losses = []
    for own, partner in enumerate((3, 4, 5, 0, 1, 2)):
        odds = np.exp(vectors @ vectors[own] / 0.2)
        losses.append(-np.log(odds[partner] / (odds.sum() - odds[own])))
    assert contrastive_loss(compared).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_few_steps_lower_the_loss_and_are_the_same_twice(views, small_batches):
    told = []
    networks = [train(views, 20, lambda step, loss: told.append((step, loss))) for _ in range(2)]
    assert told[:20] == told[20:]
    steps, losses = zip(*told[:20], strict=True)
    assert steps == tuple(range(1, 21))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.2
    for one, other in zip(*(each.folded().values() for each in networks), strict=True):
        assert torch.equal(one, other)


def test_training_leaves_the_process_random_numbers_alone(views, small_batches):
    before = torch.random.get_rng_state()
    train(views, 1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_folded_weights_answer_as_the_network_does(views, small_batches):
    network = train(views, 3)
    images = views[:, 0][:, None] / 255
    with torch.no_grad():
        expected = network.responses(images)
    assert torch.allclose(responses(images, network.folded()), expected, atol=1e-5)


def test_what_is_written_is_what_the_map_takes(tmp_path, monkeypatch):
    network = Network().eval()
    file = tmp_path / "own.npz"
    write(network, file)
    assert list(tmp_path.iterdir()) == [file]
    monkeypatch.setattr(contrastive, "FILE", file)
    written = contrastive.shipped.__wrapped__()
    folded = network.folded()
    assert written.keys() == folded.keys()
    for name, weight in written.items():
        assert torch.allclose(weight, folded[name], rtol=1e-3, atol=1e-6)
    assert np.load(file)[f"kernels_{len(LAYERS) - 1}"].dtype == np.float16
    before = file.read_bytes()
    write(network, file)
    assert file.read_bytes() == before  # no time in it


def test_the_command_writes_the_file_and_tells_its_digest(
    tmp_path, monkeypatch, capsys, small_batches
):
    file = tmp_path / "own.npz"
    for module in (contrastive, pretraining):
        monkeypatch.setattr(module, "FILE", file)
    monkeypatch.setattr(pretraining, "_N_DRAWINGS", 40)
    monkeypatch.setattr(pretraining, "network_source", contrastive.network_source.__wrapped__)
    monkeypatch.setattr(pretraining, "_STEPS_BETWEEN_LINES", 1)
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    monkeypatch.setattr(sys, "argv", ["pretraining", "--steps", "2"])
    pretraining.main()
    said = capsys.readouterr()
    (digest,) = contrastive.network_source.__wrapped__().values()
    assert digest in said.out and str(file) in said.out
    assert "step 2: loss" in said.err
