"""The contrastive network: what its weights must be, and that an image is looked at alone."""

from hashlib import blake2b

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d

from m2fdp.features import maps as contrastive
from m2fdp.features.maps import LAYERS, averaged, network_source, responses, shipped


def images(n, *size, seed=0):
    return torch.tensor(np.random.default_rng(seed).random((n, 1, *size)), dtype=torch.float32)


def test_the_shipped_weights_are_those_of_the_layers():
    channels = 1
    for number, layer in enumerate(LAYERS):
        kernels, offsets = shipped()[f"kernels_{number}"], shipped()[f"offsets_{number}"]
        assert kernels.shape == (layer.channels, channels, layer.side, layer.side)
        assert offsets.shape == (layer.channels,)
        assert kernels.dtype == offsets.dtype == torch.float32
        assert kernels.isfinite().all() and offsets.isfinite().all()
        channels = layer.channels
    assert len(shipped()) == 2 * len(LAYERS)


def test_the_source_is_the_digest_of_the_shipped_file():
    digest = blake2b(contrastive.FILE.read_bytes(), digest_size=16).hexdigest()
    assert network_source() == {"contrastive network trained on drawings": digest}
    assert contrastive.FILE.stat().st_size < 600_000


def test_responses_are_windows_of_the_last_layer_of_contrasted_images():
    image = images(1, 28, 28)
    maps = (image - image.mean()) / (image.std() + 0.05)
    for number, (stride, padding) in enumerate([(2, 2), (1, 1), (2, 1), (1, 1)]):
        kernels, offsets = shipped()[f"kernels_{number}"], shipped()[f"offsets_{number}"]
        maps = conv2d(maps, kernels, offsets, stride, padding).clamp_min(0)
    assert maps.shape == (1, 128, 7, 7)
    expected = averaged(maps, (4, 4)).flatten(1)
    assert torch.allclose(responses(image, shipped()), expected, atol=1e-5)


def test_an_image_is_looked_at_alone():
    many = images(25, 28, 28)
    together = responses(many, shipped())
    assert torch.equal(many, images(25, 28, 28))  # and is not written to
    for number in (0, 7, 24):
        alone = responses(many[number : number + 1], shipped())
        assert torch.allclose(alone[0], together[number], atol=1e-5)
    changed = many.clone()
    changed[7] = 1 - changed[7]
    different = (responses(changed, shipped()) != together).any(dim=1)
    assert different.nonzero().flatten().tolist() == [7]


def test_brightness_drops_out_and_contrast_nearly():
    image = images(4, 28, 28)
    before = responses(image, shipped())
    assert torch.allclose(responses(image + 0.3, shipped()), before, atol=1e-3)
    paler, another = responses(0.7 * image, shipped()), before.roll(1, dims=0)
    assert (paler - before).norm() < 0.4 * (another - before).norm()


@pytest.mark.parametrize("size", [(14, 14), (56, 56), (112, 84)])
def test_of_another_size_an_image_has_the_responses_of_what_it_shows(size):
    """Of smooth images, which lose little when they are resized."""
    smooth = torch.nn.functional.interpolate(images(6, 5, 5), (112, 112), mode="bicubic")
    resized, usual = (
        torch.nn.functional.interpolate(smooth, each, mode="bilinear", antialias=True)
        for each in (size, (28, 28))
    )
    here, there = responses(resized, shipped()), responses(usual, shipped())
    distances = torch.cdist(here, there)
    assert distances.argmin(dim=1).tolist() == list(range(6))


def test_no_image_is_overwritten():
    image = images(1, 28, 28)
    before = image.clone()
    responses(image, shipped())
    assert torch.equal(image, before)
