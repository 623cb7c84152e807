"""From many coefficients of an image to few numbers, by statistics of public images alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

# The squared length of features, with what rounding may add.
LONGEST_SQUARED = 1 + 1e-5
# Of the randomised decomposition; it reads public images only.
_SEED = 20_113


@dataclass(frozen=True, eq=False)
class Projection:
    """Principal components of public images.

    Attributes:
        mean: float32 (m,).
        axes: float32 (m, d), orthonormal, the leading ones first.
        variances: float32 (d,), of public images along them.
    """

    mean: Tensor
    axes: Tensor
    variances: Tensor

    def __call__(self, coefficients: Tensor) -> Tensor:
        """Coefficients (n, m), less the public mean, along the axes: (n, d)."""
        return (coefficients - self.mean) @ self.axes


def fit_projection(coefficients: Tensor, dimension: int) -> Projection:
    """The projection of the coefficients of public images.

    Args:
        coefficients: float32 (n, m), of n public images.
        dimension: d, less than n.
    """
    from sklearn.decomposition import PCA  # takes long to import, and few runs need it

    pca = PCA(dimension, svd_solver="randomized", random_state=_SEED)
    # Sums of several threads differ in their last bits, by how many threads there are.
    with threadpool_limits(1, user_api="blas"):
        pca.fit(coefficients.numpy())
    fitted = (pca.mean_, np.ascontiguousarray(pca.components_.T), pca.explained_variance_)
    return Projection(*map(torch.as_tensor, fitted))


def whitened(components: Tensor, variances: Tensor, ridge: float) -> Tensor:
    """Components divided by the root of their public variances, each record scaled to length one.

    Args:
        components: (n, d); overwritten, as they may fill the memory.
        ridge: what is added to the variances, as a share of the largest.

    Returns:
        (n, d); zero where a record has no component at all.
    """
    components.mul_((variances + ridge * variances[0]).clamp_min(1e-12).rsqrt())
    return components.div_(components.norm(dim=1, keepdim=True).clamp_min_(1e-12))
