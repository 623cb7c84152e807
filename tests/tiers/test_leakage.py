"""Distance correlation and patch shuffling."""

import numpy as np
import pytest
import torch

from m2fdp.tiers.process import distance_correlation, shuffle_places


def by_definition(x: np.ndarray, z: np.ndarray) -> float:
    """Szekely, Rizzo and Bakirov 2007, eqs 2.8 to 2.10, in loops."""

    def centred(v):
        d = np.linalg.norm(v[:, None] - v, axis=2)
        result = d.copy()
        for i, j in np.ndindex(d.shape):
            result[i, j] += d.mean() - d[i].mean() - d[:, j].mean()
        return result

    a, b = centred(x), centred(z)
    covariance, of_x, of_z = (a * b).mean(), (a * a).mean(), (b * b).mean()
    return float(np.sqrt(covariance / np.sqrt(of_x * of_z)))


def test_distance_correlation_is_that_of_its_definition():
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(12, 1, 3, 3, generator=draws, dtype=torch.float64)
    z = torch.randn(12, 4, 2, 2, generator=draws, dtype=torch.float64)
    z += x.mean((1, 2, 3), keepdim=True)
    ours = float(distance_correlation(x, z))
    expected = by_definition(x.flatten(1).numpy(), z.flatten(1).numpy())
    assert ours == pytest.approx(expected, rel=1e-10)
    assert 0 < ours < 1


def test_images_are_correlated_with_themselves_whatever_their_scale():
    x = torch.randn(9, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    assert float(distance_correlation(x, 3 * x + 1)) == pytest.approx(1, abs=1e-5)


def test_batches_that_are_all_alike_have_a_gradient():
    x = torch.ones(4, 1, 2, 2)
    z = torch.ones(4, 3, 2, 2, requires_grad=True)
    value = distance_correlation(x, z)
    value.backward()
    assert value.isfinite() and z.grad.isfinite().all()


def test_shuffling_moves_places_of_each_record_by_itself_with_all_channels():
    z = torch.arange(2 * 3 * 16.0).view(2, 3, 4, 4)
    shuffled = shuffle_places(z, np.random.default_rng(0))
    orders = []
    for record in range(2):
        order = (shuffled[record, 0].flatten() - z[record, 0, 0, 0]).long()
        assert sorted(order.tolist()) == list(range(16))
        assert torch.equal(shuffled[record].flatten(1), z[record].flatten(1)[:, order])
        orders.append(order.tolist())
    assert orders[0] != orders[1]
