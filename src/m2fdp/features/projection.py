"""From many coefficients of an image to few numbers, by statistics of public images alone."""

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

# The squared length of features, with what rounding may add.
LONGEST_SQUARED = 1 + 1e-5
# Of the randomised decomposition; it reads public images only.
_SEED = 20_113
# Added to the shares of deformations, lest axes that they hardly move outweigh all others.
_LEAST_SHARE = 0.1
# Whose new components stand beside the old ones.
_ROWS_AT_A_TIME = 4_096


def fit_projection(coefficients: Tensor, dimension: int) -> dict[str, Tensor]:
    """The principal components of coefficients of public images: their `mean` (m,), orthonormal
    `axes` (m, d), the leading ones first, and `variances` (d,) along them, float32.

    Args:
        coefficients: float32 (n, m), of n public images; overwritten, as they may fill the memory.
        dimension: d, less than n.
    """
    from sklearn.decomposition import PCA  # takes long to import, and few runs need it

    pca = PCA(dimension, copy=False, svd_solver="randomized", random_state=_SEED)
    # Sums of several threads differ in their last bits, by how many threads there are.
    with threadpool_limits(1, user_api="blas"):
        pca.fit(coefficients.numpy())
    axes = torch.as_tensor(np.ascontiguousarray(pca.components_.T))
    mean, variances = torch.as_tensor(pca.mean_), torch.as_tensor(pca.explained_variance_)
    return {"mean": mean, "axes": axes, "variances": variances}


def moved_by(changes: Tensor) -> Tensor:
    """How deformations move components: half the second moment, (d, d), of their changes (n, d),
    those of public images less those of the deformed ones."""
    rows = changes.numpy()
    with threadpool_limits(1, user_api="blas"):
        return torch.as_tensor(rows.T @ rows / (2 * len(rows)))


def by_variance(variances: Tensor, ridge: float) -> Tensor:
    """A factor for each axis, (d,): one over the root of its public variance.

    Args:
        variances: (d,), the largest first.
        ridge: what is added to the variances, as a share of the largest.
    """
    return (variances + ridge * variances[0]).clamp_min(1e-12).rsqrt()


def by_invariance(variances: Tensor, ridge: float, moved: Tensor) -> Tensor:
    """Axes of whitened components that are longer the less deformations move along them, (d, d).

    Of the variance that public images have along an axis deformations alone bring a share; what
    tells things apart lies where that share is small.

    Args:
        moved: (d, d); see `moved_by`.
    """
    factors = by_variance(variances, ridge).double()
    with threadpool_limits(1, user_api="blas"):
        shares, axes = np.linalg.eigh((factors[:, None] * moved.double() * factors).numpy())
    lengths = torch.as_tensor((shares.clip(0) + _LEAST_SHARE) ** -0.5)
    return (factors[:, None] * torch.as_tensor(axes) * lengths).float()


def whitened(components: Tensor, weights: Tensor) -> Tensor:
    """Components on weighed axes, each record scaled to length one.

    Args:
        components: (n, d); overwritten, as they may fill the memory.
        weights: (d,), a factor for each axis, or (d, d), new axes; see `by_variance` and
            `by_invariance`.

    Returns:
        (n, d); zero where a record has no component at all.
    """
    if weights.ndim == 1:
        components.mul_(weights)
    else:
        with threadpool_limits(1, user_api="blas"):
            for rows in components.split(_ROWS_AT_A_TIME):
                rows.copy_(torch.as_tensor(rows.numpy() @ weights.numpy()))
    return components.div_(components.norm(dim=1, keepdim=True).clamp_min_(1e-12))
