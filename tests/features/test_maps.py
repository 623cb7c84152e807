"""Coefficients of one image: of patches and waves against sums written out, of the contrastive
network against its layers; and what mirroring, moving and brightness change."""

from hashlib import blake2b
from math import pi

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, interpolate

from m2fdp.features.maps import (
    FILE,
    LAYERS,
    MAPS,
    ORIENTATIONS,
    PatchSettings,
    WaveSettings,
    averaged,
    fit_filters,
    morlet,
    network_source,
    of_mirror_images,
    patch_answers,
    responses,
    scattering,
    shipped,
    sources_of,
    standardised,
    windows,
)
from m2fdp.features.public import public_images

SETTINGS = PatchSettings(
    side=4, stride=2, padding=1, n_filters=5, ridge=0.1, threshold=0.3, cells=2
)


def images(n, shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).random((n, *shape)), dtype=torch.float32)


def test_answers_are_what_is_said_of_them_patch_by_patch():
    filters = fit_filters(images(40, (1, 10, 10)), SETTINGS)
    weights, offsets = filters["weights"].numpy(), filters["offsets"].numpy()
    image = images(1, (1, 6, 6), seed=1)
    padded = np.pad(image[0, 0].numpy(), 1)
    answers = np.empty((5, 3, 3))
    for row in range(3):
        for column in range(3):
            patch = padded[2 * row : 2 * row + 4, 2 * column : 2 * column + 4].ravel()
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + 10 / 255**2)
            answers[:, row, column] = weights @ patch - offsets
    along, against = np.maximum(answers - 0.3, 0), np.maximum(-answers - 0.3, 0)
    responses = patch_answers(image, filters, SETTINGS)[0].numpy()
    # Three positions a side in two cells, of deviation 3/4 around 3/4 and 9/4.
    near, middle, far = np.exp(-(np.array([0.25, 0.75, 1.75]) ** 2) / 2 / 0.75**2)
    first = np.array([near, middle, far]) / (near + middle + far)
    by_cell = np.stack([first, first[::-1]])
    expected = np.einsum("ki,lj,nij->nkl", by_cell, by_cell, np.concatenate([along, against]))
    assert responses == pytest.approx(expected, abs=1e-5)


def test_filters_are_whitened_patches_in_deviations_of_their_answers():
    public = torch.tensor(public_images("photographs").draw(300, (1, 16, 16)))
    filters = fit_filters(public, SETTINGS)
    assert filters["weights"].shape == (5, 16)
    patches = torch.nn.functional.unfold(public, 4).transpose(1, 2).reshape(-1, 16)
    answers = standardised(patches, (1,), 10 / 255**2) @ filters["weights"].T - filters["offsets"]
    assert answers.mean().item() == pytest.approx(0, abs=0.1)
    assert answers.std().item() == pytest.approx(1, abs=0.1)


def test_brightness_and_contrast_of_an_image_hardly_change_its_patches():
    filters = fit_filters(images(40, (1, 10, 10)), SETTINGS)
    unpadded = PatchSettings(**(vars(SETTINGS) | {"padding": 0}))
    image = images(1, (1, 10, 10), seed=1)
    affine = patch_answers(0.3 + 0.6 * image, filters, unpadded)
    assert torch.allclose(patch_answers(image, filters, unpadded), affine, atol=0.02)


@pytest.mark.parametrize("map_", MAPS["both"])
def test_of_colours_the_mirror_image_has_the_same_features_and_of_grey_images_others(map_):
    for shape, mirrors in (((3, 16, 16), True), ((1, 16, 16), False)):
        fitted = map_.fit(images(40, shape))
        image = images(1, shape, seed=1)
        mapped, mirrored = map_.answers(image, fitted), map_.answers(image.flip(-1), fitted)
        assert torch.allclose(mapped, mirrored, atol=1e-4) == mirrors


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 20, 50)])
def test_there_are_as_many_coefficients_as_are_counted(shape):
    for map_ in (each for each in MAPS["all"] if shape[0] in each.channels):
        coefficients = map_.answers(images(2, shape), map_.fit(images(20, shape)))
        assert coefficients.shape == (2, map_.count(shape))
        assert coefficients.isfinite().all()


def test_only_the_network_was_shaped_before_it_is_fitted():
    assert sources_of("both") == {}
    assert sources_of("all") == sources_of("contrastive") == network_source()


def test_the_network_is_the_same_whatever_the_public_images():
    map_ = MAPS["contrastive"][0]
    first, second = (map_.fit(images(20, (1, 28, 28), seed)) for seed in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first | second)


def test_standardised_maps_depend_on_their_own_image_alone():
    maps = images(3, (4, 5, 5), seed=1)
    maps[0, 2] = 0.7  # without contrast
    result = standardised(maps, dims=(2, 3))
    assert result.mean(dim=(2, 3)).abs().max() < 1e-5
    deviations = result.square().mean(dim=(2, 3)).sqrt()
    assert deviations[0, 2] == 0
    deviations[0, 2] = 1
    assert (deviations - 1).abs().max() < 1e-3
    assert torch.equal(standardised(maps[1:2], dims=(2, 3))[0], result[1])


def test_patches_without_contrast_are_the_last_to_become_filters():
    plain = torch.full((4000, 1, 10, 10), 0.5)
    plain[:2, :, 4:6, 4:6] = images(2, (1, 2, 2))
    settings = PatchSettings(**(vars(SETTINGS) | {"n_filters": 60, "padding": 0}))
    filters = fit_filters(plain, settings)
    assert filters["weights"].shape == (60, 16)
    assert filters["weights"].isfinite().all()
    # All plain patches are one and the same.
    assert torch.allclose(filters["weights"][-2], filters["weights"][-1])
    assert not torch.allclose(filters["weights"][0], filters["weights"][-1])


def test_two_cells_of_four_pixels_are_gaussians_around_their_middles():
    # Middles 1 and 3: pixels at 0.5, 1.5, 2.5, 3.5.
    distances = np.array([0.5, 0.5, 1.5, 2.5])
    for found, deviation in ((windows(4, 2), 1), (windows(4, 2, spread=0.7), 1.4)):
        weights = np.exp(-((distances / deviation) ** 2) / 2)
        expected = weights / weights.sum()
        assert found.numpy() == pytest.approx(np.stack([expected, expected[::-1]]))


@pytest.mark.parametrize(
    ("size", "cells"), [(14, 3), (25, 6), (8, 4), (7, 7), (2, 2), (5, 6), (1, 1)]
)
def test_windows_are_means_and_mirror_images_of_each_other(size, cells):
    weights = windows(size, cells)
    assert weights.shape == (cells, size)
    assert weights.sum(dim=1).numpy() == pytest.approx(np.ones(cells))
    assert torch.allclose(weights, weights.flip(0, 1))
    assert (weights.argmax(dim=1).diff() >= 0).all()


def test_maps_are_averaged_side_by_side():
    maps = torch.tensor(np.random.default_rng(0).random((2, 3, 7, 5)), dtype=torch.float32)
    by_row, by_column = windows(7, 4).numpy(), windows(5, 2).numpy()
    expected = np.einsum("ki,lj,ncij->nckl", by_row, by_column, maps.numpy())
    assert averaged(maps, (4, 2)).numpy() == pytest.approx(expected, abs=1e-6)


def test_a_shift_by_half_a_cell_changes_less_than_it_would_change_separate_cells():
    maps = torch.zeros(1, 1, 12, 12)
    maps[..., 4:8, 4:8] = 1
    moved = maps.roll(2, dims=-1)

    def change(means):
        before, after = means(maps), means(moved)
        return ((before - after).norm() / before.norm()).item()

    separate = change(lambda each: torch.nn.functional.adaptive_avg_pool2d(each, 3))
    assert change(lambda each: averaged(each, (3, 3))) < 0.9 * separate


# The contrastive network


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
    digest = blake2b(FILE.read_bytes(), digest_size=16).hexdigest()
    assert network_source() == {"contrastive network trained on drawings": digest}
    assert FILE.stat().st_size < 600_000


def test_responses_are_windows_of_the_last_layer_of_contrasted_images():
    image = images(1, (1, 28, 28))
    maps = (image - image.mean()) / (image.std() + 0.05)
    for number, (stride, padding) in enumerate([(2, 2), (1, 1), (2, 1), (1, 1)]):
        kernels, offsets = shipped()[f"kernels_{number}"], shipped()[f"offsets_{number}"]
        maps = conv2d(maps, kernels, offsets, stride, padding).clamp_min(0)
    assert maps.shape == (1, 128, 7, 7)
    expected = averaged(maps, (4, 4)).flatten(1)
    assert torch.allclose(responses(image, shipped()), expected, atol=1e-5)


def test_an_image_is_looked_at_alone():
    many = images(25, (1, 28, 28))
    together = responses(many, shipped())
    assert torch.equal(many, images(25, (1, 28, 28)))  # and is not written to
    for number in (0, 7, 24):
        alone = responses(many[number : number + 1], shipped())
        assert torch.allclose(alone[0], together[number], atol=1e-5)
    changed = many.clone()
    changed[7] = 1 - changed[7]
    different = (responses(changed, shipped()) != together).any(dim=1)
    assert different.nonzero().flatten().tolist() == [7]


def test_brightness_drops_out_and_contrast_nearly():
    image = images(4, (1, 28, 28))
    before = responses(image, shipped())
    assert torch.allclose(responses(image + 0.3, shipped()), before, atol=1e-3)
    paler, another = responses(0.7 * image, shipped()), before.roll(1, dims=0)
    assert (paler - before).norm() < 0.4 * (another - before).norm()


@pytest.mark.parametrize("size", [(14, 14), (56, 56), (112, 84)])
def test_of_another_size_an_image_has_the_responses_of_what_it_shows(size):
    """Of smooth images, which lose little when they are resized."""
    smooth = interpolate(images(6, (1, 5, 5)), (112, 112), mode="bicubic")
    resized, usual = (
        interpolate(smooth, each, mode="bilinear", antialias=True) for each in (size, (28, 28))
    )
    here, there = responses(resized, shipped()), responses(usual, shipped())
    distances = torch.cdist(here, there)
    assert distances.argmin(dim=1).tolist() == list(range(6))


# Scattering


def of(cells):
    return WaveSettings(cells=cells, spread=0.5)


ANGLES = [pi * k / ORIENTATIONS for k in range(ORIENTATIONS)]


def response(image, kernel, row, column):
    """One product of a kernel with the mirrored image, term by term."""
    reach = kernel.shape[0] // 2
    total = 0
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            y, x = row + i - reach, column + j - reach
            total += kernel[i, j] * image[mirrored(y, len(image)), mirrored(x, image.shape[1])]
    return total


def mirrored(place, size):
    """0 1 2 | 2 1 0 | 0 1 2 …"""
    place %= 2 * size
    return place if place < size else 2 * size - 1 - place


def moduli(image, k):
    kernel = morlet(ANGLES[k])
    rows, columns = image.shape
    places = [[(row, column) for column in range(columns)] for row in range(rows)]
    return np.array([[abs(response(image, kernel, *place)) for place in row] for row in places])


def means(image, *cells, spread=0.5):
    pairs = zip(image.shape, cells, strict=True)
    by_row, by_column = (windows(*each, spread).numpy() for each in pairs)
    return by_row @ image @ by_column.T


def test_every_order_is_the_sum_that_it_is_said_to_be():
    image, k, m = np.random.default_rng(0).random((9, 7)), 3, 6
    one = torch.tensor(image[None, None], dtype=torch.float32)
    result = scattering(one, WaveSettings(cells=3, spread=0.6))[0, 0].numpy()
    assert result.shape == (81, 3, 2)
    fine, coarse = moduli(image, k), moduli(means(image, 5, 4), k)
    second = moduli(means(fine, 5, 4), m)
    for path, maps in (
        (0, image),
        (1 + k, fine),
        (1 + ORIENTATIONS + k, coarse),
        (1 + 2 * ORIENTATIONS + k * ORIENTATIONS + m, second),
    ):
        assert result[path] == pytest.approx(means(maps, 3, 2, spread=0.6), rel=1e-4)


@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("k", range(ORIENTATIONS))
def test_a_wave_answers_in_its_own_orientation_most(scale, k):
    frequency, size = 0.75 * pi / 2**scale, 64
    y, x = np.mgrid[:size, :size]
    wave = np.cos(frequency * (x * np.cos(ANGLES[k]) + y * np.sin(ANGLES[k])))
    waves = torch.tensor(wave[None, None], dtype=torch.float32)
    of_scale = slice(1 + scale * ORIENTATIONS, 1 + (1 + scale) * ORIENTATIONS)
    assert scattering(waves, of(16))[0, 0, of_scale, 7, 7].argmax() == k


@pytest.mark.parametrize("k", range(ORIENTATIONS))
def test_a_fine_wave_passes_by_the_spectrum_of_its_wavelet(k):
    frequency, size, kernel = 0.75 * pi, 64, morlet(ANGLES[k])
    reach = kernel.shape[0] // 2

    def phases(y, x):
        return frequency * (x * np.cos(ANGLES[k]) + y * np.sin(ANGLES[k]))

    wave = torch.tensor(np.cos(phases(*np.mgrid[:size, :size])), dtype=torch.float32)
    found = scattering(wave[None, None], of(16))[0, 0, 1 + k, 7, 7].item()
    # Half a wave turns each way; the wavelet lets one pass, by its transform at that frequency, and
    # of the other, beyond half a turn a pixel, up to 7 % of that.
    here = phases(*np.mgrid[-reach : reach + 1, -reach : reach + 1])
    passed = abs((kernel * np.exp(-1j * here)).sum()) / 2
    assert found == pytest.approx(passed, rel=0.07)


@pytest.mark.parametrize("shape", [(12, 16), (9, 11)])
def test_paths_of_the_mirror_image_follow_from_those_of_the_image(shape):
    image = images(2, (3, *shape))
    mirrored_image = scattering(image.flip(-1), of(4))
    assert torch.allclose(of_mirror_images(scattering(image, of(4))), mirrored_image, atol=1e-6)


def test_without_contrast_only_the_mean_is_left():
    paths = scattering(torch.full((1, 3, 16, 12), 0.4), of(4))[0]
    assert paths[:, 0] == pytest.approx(0.4, abs=1e-6)
    assert paths[:, 1:].abs().max() < 1e-6


def test_an_image_moved_by_a_cell_moves_the_maps_by_a_cell():
    big = torch.tensor(np.random.default_rng(1).random((1, 1, 76, 76)), dtype=torch.float32)
    first, shifted = (scattering(big[..., :72, start : start + 72], of(18)) for start in (0, 4))
    # Away from the borders, over which the two images go on differently.
    assert torch.allclose(first[..., 8:10, 8:10], shifted[..., 8:10, 7:9], atol=1e-6)


def test_a_small_move_changes_the_averages_less_than_the_pixels():
    """What the averages are for; by Mallat's Theorem 2.10 the more so the larger the cell."""
    y, x = np.mgrid[:32, :32]
    image = np.exp(-((x - 15) ** 2 + (y - 15) ** 2) / 18) * np.cos(1.5 * x)
    moved = np.roll(image, 1, axis=1)
    pair = torch.tensor(np.stack([image, moved])[:, None], dtype=torch.float32)
    maps = scattering(pair, of(8)).flatten(1)

    def change(a, b):
        return float((a - b).norm() / a.norm())

    assert change(*maps) < change(*pair.flatten(1)) / 3


def test_no_wavelet_gains_energy():
    """All moduli of one order together hold at most the image's energy."""
    image = torch.tensor(np.random.default_rng(2).standard_normal((1, 1, 64, 64)))
    spectrum = np.zeros((64, 64))
    for angle in ANGLES:
        kernel = morlet(angle)
        padded = np.zeros((64, 64), dtype=complex)
        padded[: len(kernel), : len(kernel)] = kernel
        transform = abs(np.fft.fft2(padded)) ** 2
        # The other half plane's wavelets are the conjugates, whose moduli are the same.
        spectrum += (transform + np.roll(transform[::-1, ::-1], 1, (0, 1))) / 2
    assert 0.2 < spectrum.max() <= 1.0
    assert scattering(image.float(), of(16)).square().sum() <= image.square().sum()


def test_colours_are_transformed_each_by_itself():
    images = torch.tensor(np.random.default_rng(3).random((2, 3, 12, 12)), dtype=torch.float32)
    by_channel = [scattering(images[:, c : c + 1], of(3)) for c in range(3)]
    assert torch.allclose(scattering(images, of(3)), torch.cat(by_channel, dim=1), atol=1e-6)
