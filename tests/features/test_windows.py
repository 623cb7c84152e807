"""Windows over cells: by hand, by symmetry, and how little a shift by half a cell changes them."""

import numpy as np
import pytest
import torch

from m2fdp.features.maps import averaged, windows


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
