"""Clipping: factors that bound norms, and what they are multiplied with."""

import torch
from torch import Tensor

from m2fdp.core.engine.rules import ClipFactor

# A computed norm below it may be too small: squares of what is below 1e-19 vanish in float32.
_SMALLEST = 1e-12


def clip_factors(
    norms: Tensor, clipping_norm: float, factor: ClipFactor
) -> tuple[Tensor, Tensor | None]:
    """The factors (…) of gradients with norms (…), and those that no factor can bound, bool (…), or
    None: their norm is not finite, or too large for a factor in float32. They are made zero; a
    factor of 0 would keep NaN."""
    largest = clipping_norm / torch.finfo(norms.dtype).tiny
    if float(norms.sum()) <= largest:
        return factor(norms, clipping_norm), None
    lost = ~((norms <= largest) & norms.isfinite())
    return factor(norms.masked_fill(lost, 0.0), clipping_norm), lost


def lengths(vectors: Tensor) -> Tensor:
    """The norms (n,) of vectors (n, M), exact even if squares vanish in float32."""
    norms = vectors.norm(dim=1)
    short = norms < _SMALLEST
    if bool(short.any()):
        norms[short] = vectors[short].double().norm(dim=1).to(norms)
    return norms


def squared_norms_of_products(ones: Tensor, others: Tensor) -> Tensor:
    """The squared norms (n,) of the outer products of vectors (n, A) and (n, B), short or long."""
    one, other = ones.square().sum(1), others.square().sum(1)
    products = one * other
    short = one.minimum(other) < _SMALLEST**2
    if bool(short.any()):
        exact = ones[short].double().square().sum(1) * others[short].double().square().sum(1)
        products[short] = exact.to(products)
    return products


def clip_rows(vectors: Tensor, norm: float, factor: ClipFactor) -> Tensor:
    """Clip each of the vectors (n, M) to a norm, in place; to zero if nothing bounds it."""
    factors, lost = clip_factors(vectors.norm(dim=1, keepdim=True), norm, factor)
    if lost is not None:
        vectors.masked_fill_(lost, 0.0)
    return vectors.mul_(factors)
