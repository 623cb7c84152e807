"""Whitening by public statistics, against what it must do to the images that it was fitted on."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from m2fdp.features.projection import (
    LONGEST_SQUARED,
    by_invariance,
    by_variance,
    fit_projection,
    moved_by,
    whitened,
)


def coefficients(n=400, m=12):
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((n, m)) @ rng.standard_normal((m, m)) + rng.standard_normal(m)
    return torch.tensor(mixed, dtype=torch.float32)


def test_without_ridge_public_images_have_unit_variance_along_every_axis():
    public = coefficients()
    projection = fit_projection(public.clone(), dimension=5)
    components = (public - projection["mean"]) @ projection["axes"]
    scaled = components * projection["variances"].rsqrt()
    covariance = scaled.T @ scaled / (len(public) - 1)
    assert torch.allclose(covariance, torch.eye(5), atol=1e-3)


def test_the_axes_are_those_of_numpys_decomposition():
    public = coefficients()
    values, vectors = np.linalg.eigh(np.cov(public.double().numpy().T))
    projection = fit_projection(public.clone(), dimension=3)
    assert projection["mean"].numpy() == pytest.approx(public.mean(dim=0).numpy(), abs=1e-5)
    for axis in range(3):
        found_axis, expected = projection["axes"][:, axis].numpy(), vectors[:, -1 - axis]
        assert abs(found_axis @ expected) == pytest.approx(1, abs=1e-4)
        assert projection["variances"][axis] == pytest.approx(values[-1 - axis], rel=1e-4)


def test_no_byte_depends_on_how_many_threads_multiply():
    public, fitted = coefficients(600, 1500), []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            fitted.append(fit_projection(public.clone(), dimension=60))
    for name in ("mean", "axes", "variances"):
        assert torch.equal(*(projection[name] for projection in fitted))


def test_the_ridge_is_a_share_of_the_largest_variance():
    components, variances = torch.tensor([[3.0, 4.0]]), torch.tensor([4.0, 1.0])
    expected = np.array([3 / np.sqrt(6), 4 / np.sqrt(3)])
    expected /= np.linalg.norm(expected)
    assert whitened(components, by_variance(variances, 0.5))[0].numpy() == pytest.approx(expected)


def weights_of(kind):
    variances = torch.arange(12.0, 0, -1)
    if kind == "variance":
        return by_variance(variances, 0.01)
    return by_invariance(variances, 0.01, moved_by(coefficients() / 10))


@pytest.mark.parametrize("kind", ["variance", "invariance"])
def test_features_have_length_one_or_zero_where_nothing_is_left(kind):
    components = torch.cat([coefficients(), torch.zeros(1, 12)])
    lengths = whitened(components, weights_of(kind)).square().sum(dim=1)
    assert lengths[:-1] == pytest.approx(1, abs=1e-5)
    assert lengths.max() <= LONGEST_SQUARED
    assert lengths[-1] == 0


def test_axes_that_deformations_move_weigh_less():
    """Two axes of variance 4 and 1; deformations move the first by half its variance."""
    variances, moved = torch.tensor([4.0, 1.0]), torch.diag(torch.tensor([2.0, 0.0]))
    record = torch.tensor([[2.0, 1.0]])
    expected = np.array([0.6**-0.5, 0.1**-0.5])
    expected /= np.linalg.norm(expected)
    moved_record = whitened(record, by_invariance(variances, 0.0, moved))[0].abs().numpy()
    assert np.sort(moved_record) == pytest.approx(np.sort(expected))


def test_where_deformations_move_nothing_records_lie_as_whitened():
    """Up to a turn of the axes, which changes no scalar product."""
    variances, components = torch.arange(12.0, 0, -1), coefficients()
    plain = whitened(components.clone(), by_variance(variances, 0.01))
    weights = by_invariance(variances, 0.01, torch.zeros(12, 12))
    turned = whitened(components.clone(), weights)
    assert torch.allclose(turned @ turned.T, plain @ plain.T, atol=1e-5)


def test_moved_is_half_the_second_moment_of_changes():
    changes = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    expected = [[10 / 4, 2 / 4], [2 / 4, 4 / 4]]
    assert moved_by(changes).numpy() == pytest.approx(np.array(expected))
