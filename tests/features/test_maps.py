"""Coefficients of one image: from patches written out, and what mirroring and brightness change."""

import numpy as np
import pytest
import torch

from m2fdp.features.maps import (
    MAPS,
    PatchSettings,
    averaged,
    fit_filters,
    network_source,
    patch_answers,
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
    # Middles 1 and 3, deviation 1: pixels at 0.5, 1.5, 2.5, 3.5.
    weights = np.exp([-(0.5**2) / 2, -(0.5**2) / 2, -(1.5**2) / 2, -(2.5**2) / 2])
    expected = weights / weights.sum()
    assert windows(4, 2).numpy() == pytest.approx(np.stack([expected, expected[::-1]]))


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
