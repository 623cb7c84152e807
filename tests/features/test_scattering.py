"""The transform against sums written out, known waves, and what any such transform keeps."""

from math import pi

import numpy as np
import pytest
import torch

from m2fdp.features.scattering import ORIENTATIONS, averaging, morlet, scattering

ANGLES = [pi * k / ORIENTATIONS for k in range(ORIENTATIONS)]


def response(image, kernel, row, column, stride=1):
    """One product of a kernel with the mirrored image, term by term."""
    reach = kernel.shape[0] // 2
    total = 0
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            y, x = row * stride + i - reach, column * stride + j - reach
            total += kernel[i, j] * image[mirrored(y, len(image)), mirrored(x, image.shape[1])]
    return total


def mirrored(place, size):
    """0 1 2 | 2 1 0 | 0 1 2 …"""
    place %= 2 * size
    return place if place < size else 2 * size - 1 - place


def gaussian(sigma):
    reach = int(np.ceil(3 * sigma))
    line = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return np.outer(line, line) / line.sum() ** 2


def moduli(image, scale, k, stride=1):
    kernel = morlet(scale, ANGLES[k])
    shape = tuple(-(-side // stride) for side in image.shape)
    return np.array(
        [
            [abs(response(image, kernel, row, column, stride)) for column in range(shape[1])]
            for row in range(shape[0])
        ]
    )


def test_every_order_is_the_sum_that_it_is_said_to_be():
    image = np.random.default_rng(0).random((9, 10))
    result = scattering(torch.tensor(image[None, None], dtype=torch.float32))[0].numpy()
    assert result.shape == (81, 3, 3)
    low, low_of_half = gaussian(1.6), gaussian(0.8)
    row, column, k, m = 1, 2, 3, 6
    fine, coarse = moduli(image, 0, k), moduli(image, 1, k)
    assert result[0, row, column] == pytest.approx(response(image, low, row, column, 4), rel=1e-4)
    assert result[1 + k, row, column] == pytest.approx(
        response(fine, low, row, column, 4), rel=1e-4
    )
    assert result[1 + ORIENTATIONS + k, row, column] == pytest.approx(
        response(coarse, low, row, column, 4), rel=1e-4
    )
    second = moduli(fine, 1, m, stride=2)
    assert result[1 + 2 * ORIENTATIONS + k * ORIENTATIONS + m, row, column] == pytest.approx(
        response(second, low_of_half, row, column, 2), rel=1e-4
    )


@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("k", range(ORIENTATIONS))
def test_a_wave_answers_in_its_own_orientation_and_scale_by_its_spectrum(scale, k):
    frequency, size = 0.75 * pi / 2**scale, 64
    y, x = np.mgrid[:size, :size]
    wave = np.cos(frequency * (x * np.cos(ANGLES[k]) + y * np.sin(ANGLES[k])))
    first = scattering(torch.tensor(wave[None, None], dtype=torch.float32))[0, 1:17, 7, 7].numpy()
    assert first.argmax() == scale * ORIENTATIONS + k
    # Half a wave turns each way; the wavelet lets one pass, by its transform at that frequency, and
    # of the other, beyond half a turn a pixel, up to 7 % of that.
    kernel = morlet(scale, ANGLES[k])
    reach = kernel.shape[0] // 2
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    turning = np.exp(1j * frequency * (x * np.cos(ANGLES[k]) + y * np.sin(ANGLES[k])))
    passed = abs((kernel * turning.conj()).sum()) / 2
    assert first.max() == pytest.approx(passed, rel=0.07)


def test_without_contrast_only_the_mean_is_left():
    result = scattering(torch.full((1, 3, 16, 12), 0.4))
    by_path = result.reshape(3, 81, 4, 3)
    assert by_path[:, 0] == pytest.approx(0.4, abs=1e-6)
    assert by_path[:, 1:].abs().max() < 1e-6


def test_an_image_moved_by_a_cell_moves_the_maps_by_a_cell():
    big = torch.tensor(np.random.default_rng(1).random((1, 1, 76, 76)), dtype=torch.float32)
    first, shifted = scattering(big[..., :72, :72]), scattering(big[..., 4:, 4:])
    # Away from the borders, over which the two images go on differently.
    assert torch.allclose(first[..., 8:10, 8:10], shifted[..., 7:9, 7:9], atol=1e-6)


def test_a_small_move_changes_the_averages_less_than_the_pixels():
    """What the averages are for; by Mallat's Theorem 2.10 the more so the larger the cell."""
    y, x = np.mgrid[:32, :32]
    image = np.exp(-((x - 15) ** 2 + (y - 15) ** 2) / 18) * np.cos(1.5 * x)
    moved = np.roll(image, 1, axis=1)
    pair = torch.tensor(np.stack([image, moved])[:, None], dtype=torch.float32)
    maps = scattering(pair).flatten(1)

    def change(a, b):
        return float((a - b).norm() / a.norm())

    assert change(*maps) < change(*pair.flatten(1)) / 3


def test_no_wavelet_gains_energy():
    """All moduli of one order together hold at most the image's energy."""
    image = torch.tensor(np.random.default_rng(2).standard_normal((1, 1, 64, 64)))
    spectrum = np.zeros((64, 64))
    for scale in (0, 1):
        for angle in ANGLES:
            kernel = morlet(scale, angle)
            padded = np.zeros((64, 64), dtype=complex)
            padded[: len(kernel), : len(kernel)] = kernel
            transform = abs(np.fft.fft2(padded)) ** 2
            # The other half plane's wavelets are the conjugates, whose moduli are the same.
            spectrum += (transform + np.roll(transform[::-1, ::-1], 1, (0, 1))) / 2
    assert 0.2 < spectrum.max() <= 1.0
    assert scattering(image.float()).square().sum() <= image.square().sum()


def test_colours_are_transformed_each_by_itself():
    images = torch.tensor(np.random.default_rng(3).random((2, 3, 12, 12)), dtype=torch.float32)
    by_channel = [scattering(images[:, c : c + 1]) for c in range(3)]
    assert torch.allclose(scattering(images), torch.cat(by_channel, dim=1), atol=1e-6)


@pytest.mark.parametrize(("size", "stride"), [(8, 4), (7, 4), (28, 4), (14, 2), (3, 2)])
def test_averages_are_weights_that_sum_to_one(size, stride):
    weights = averaging(size, 1.6, stride)
    assert weights.shape == (-(-size // stride), size)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert weights.min() >= 0
