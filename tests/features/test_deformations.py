"""Small deformations: the same size and range, near the image, the same for whoever asks."""

import numpy as np
import pytest
import torch

from m2fdp.features.drawings import deformed


def discs(n=40, channels=1, side=28):
    """A bright disc in the middle of each, with the same grey edge around."""
    rows, columns = np.ogrid[:side, :side]
    disc = (np.hypot(rows - side / 2, columns - side / 2) < side / 4) * 0.8 + 0.1
    return torch.as_tensor(np.broadcast_to(disc, (n, channels, side, side)).copy()).float()


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32), (1, 9)])
def test_images_stay_images(channels, side):
    moved = deformed(discs(channels=channels, side=side), np.random.default_rng(0))
    assert moved.shape == (40, channels, side, side)
    assert moved.dtype == torch.float32
    assert moved.min() >= 0
    assert moved.max() <= 1


def test_each_is_moved_a_little_and_otherwise():
    images = discs()
    moved = deformed(images, np.random.default_rng(0))
    differences = (moved - images).abs().mean(dim=(1, 2, 3))
    assert differences.min() > 0.005
    # An image of another thing, here of nothing, is farther away.
    assert differences.max() < (images - 0.1).abs().mean()
    assert len({image.numpy().tobytes() for image in moved}) == len(moved)


def test_the_edge_goes_on_outside():
    """A plain image has no edge to see, wherever it is moved to; contrast changes it as a whole."""
    plain = torch.full((10, 1, 28, 28), 0.5)
    moved = deformed(plain, np.random.default_rng(0))
    assert moved.amax(dim=(1, 2, 3)) == pytest.approx(moved.amin(dim=(1, 2, 3)), abs=1e-5)


def test_the_same_draws_give_the_same_bytes():
    first, second = (deformed(discs(), np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(first, second)
