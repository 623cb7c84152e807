"""Clipping: factors that bound norms. Functions import torch: a refused plan needs none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, TypeAlias

from m2fdp.core.errors import InputError
from m2fdp.core.own_code import guarded

if TYPE_CHECKING:
    from torch import Tensor

# From norms (…) and the clipping norm C to factors (…): no norm times its factor is above C.
ClipFactor: TypeAlias = "Callable[[Tensor, float], Tensor]"

# A computed norm below it may be too small: squares of what is below 1e-19 vanish in float32.
_SMALLEST = 1e-12


def flat_clip(norms: Tensor, clipping_norm: float) -> Tensor:
    """min(1, clipping norm / norm), and 1 for a zero norm."""
    import torch

    return (clipping_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)


@dataclass(frozen=True)
class OneByOne:
    """A user's own clip factor. It sees one norm at a time (`torch.func.vmap`): none depends on
    another record. No norm times it is above C; a factor below 0, or not finite, counts as 0."""

    factor: ClipFactor

    def __call__(self, norms: Tensor, clipping_norm: float) -> Tensor:
        if not norms.numel():  # vmap takes no norms for a mistake
            return norms
        limits = clipping_norm / norms.clamp_min(_SMALLEST)
        factors = self.uncapped(norms.flatten(), clipping_norm).view_as(norms).to(norms)
        return factors.minimum(limits).where((factors > 0) & factors.isfinite(), 0.0)

    def uncapped(self, norms: Tensor, clipping_norm: float) -> Tensor:
        """The own code's factors (n,) of norms (n,)."""
        import torch

        return torch.func.vmap(lambda norm: self.factor(norm, clipping_norm))(norms.clone())


def bounded(factor: ClipFactor) -> ClipFactor:
    """The clip factor; a user's own as `OneByOne`."""
    return factor if factor is flat_clip or isinstance(factor, OneByOne) else OneByOne(factor)


def unbounded(norms: Tensor, clipping_norm: float) -> Tensor | None:
    """The gradients that no clip factor can bound, bool (…), or None: their norm is not finite, or
    too large for a factor in float32. They are made zero; a factor of 0 would keep NaN."""
    import torch

    largest = clipping_norm / torch.finfo(norms.dtype).tiny
    if float(norms.sum()) <= largest:
        return None
    return ~((norms <= largest) & norms.isfinite())


def clip_factors(
    norms: Tensor, clipping_norm: float, factor: ClipFactor
) -> tuple[Tensor, Tensor | None]:
    """The factors (…) of gradients with norms (…), and the `unbounded` ones, to be made zero."""
    lost = unbounded(norms, clipping_norm)
    if lost is not None:
        norms = norms.masked_fill(lost, 0.0)
    return factor(norms, clipping_norm), lost


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


def clip_layers(
    vectors: Tensor, norm: float, factor: ClipFactor, layers: Sequence[slice] | None
) -> Tensor:
    """Clip vectors (n, M) to a norm, in place: each of L layers to norm / sqrt(L) (McMahan et al.
    2018, PerLayerClip), or without layers the whole."""
    if layers is None:
        return clip_rows(vectors, norm, factor)
    for layer in layers:
        clip_rows(vectors[:, layer], norm / sqrt(len(layers)), factor)
    return vectors


def try_clip_factor(factor: ClipFactor, algorithm: str) -> None:
    """Try a user's own clip factor, before anything is written. Its values are not judged:
    `OneByOne` bounds them.

    Raises:
        InputError: it can't be given one norm at a time, or gives no factor a norm.
    """
    if not isinstance(factor, OneByOne):
        return
    import torch

    norms = torch.tensor([0.0, 0.5, 2.0])
    one_by_one = "has a clip_factor that can't be vectorised over norms, one seen at a time"
    with guarded("algorithm", algorithm, one_by_one):
        factors = factor.uncapped(norms, 1.0)
    if factors.shape != norms.shape:
        raise InputError("algorithm", algorithm, "has a clip_factor that gives no factor a norm")
