"""Clipping: factors that bound norms, whatever the gradients are.

An algorithm's plan names its clip factor, and a plan that is refused needs no torch: functions here
import it.
"""

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
    """A clip factor of an algorithm's own, which sees one norm at a time (`torch.func.vmap`).

    So no record's factor depends on another's norm. Whatever the factor is, it is cut so that no
    norm times it is above C; one that is below 0, or not finite, counts as 0.
    """

    factor: ClipFactor

    def __call__(self, norms: Tensor, clipping_norm: float) -> Tensor:
        if not norms.numel():  # vmap takes no norms for a mistake
            return norms
        limits = clipping_norm / norms.clamp_min(_SMALLEST)
        factors = self.uncapped(norms.flatten(), clipping_norm).view_as(norms).to(norms)
        return factors.minimum(limits).where((factors > 0) & factors.isfinite(), 0.0)

    def uncapped(self, norms: Tensor, clipping_norm: float) -> Tensor:
        """What the own code makes of each of the norms (n,)."""
        import torch

        return torch.func.vmap(lambda norm: self.factor(norm, clipping_norm))(norms.clone())


def bounded(factor: ClipFactor) -> ClipFactor:
    """The clip factor, as it is if it is this package's, and else as all of privacy needs it."""
    return factor if factor is flat_clip or isinstance(factor, OneByOne) else OneByOne(factor)


def unbounded(norms: Tensor, clipping_norm: float) -> Tensor | None:
    """Which gradients no clip factor can bound; None where there is none, as there should be.

    Their norm is not finite, or so large that the factor has hardly a digit left. They count as
    zero, but not by a factor of 0: that leaves what is not finite as it is.
    """
    import torch

    largest = clipping_norm / torch.finfo(norms.dtype).tiny
    if float(norms.sum()) <= largest:
        return None
    return ~((norms <= largest) & norms.isfinite())


def clip_factors(
    norms: Tensor, clipping_norm: float, factor: ClipFactor
) -> tuple[Tensor, Tensor | None]:
    """The factors (…) of gradients with these norms (…), and which of them are `unbounded`, to be
    made zero."""
    lost = unbounded(norms, clipping_norm)
    if lost is not None:
        norms = norms.masked_fill(lost, 0.0)
    return factor(norms, clipping_norm), lost


def lengths(vectors: Tensor) -> Tensor:
    """The norms (n,) of vectors (n, M), those too whose squares vanish in float32."""
    norms = vectors.norm(dim=1)
    short = norms < _SMALLEST
    if bool(short.any()):
        norms[short] = vectors[short].double().norm(dim=1).to(norms)
    return norms


def squared_norms_of_products(ones: Tensor, others: Tensor) -> Tensor:
    """The squared norms (n,) of the outer products of vectors (n, A) and (n, B), those too of short
    vectors and long ones."""
    one, other = ones.square().sum(1), others.square().sum(1)
    products = one * other
    short = one.minimum(other) < _SMALLEST**2
    if bool(short.any()):
        exact = ones[short].double().square().sum(1) * others[short].double().square().sum(1)
        products[short] = exact.to(products)
    return products


def clip_rows(vectors: Tensor, norm: float, factor: ClipFactor) -> Tensor:
    """The vectors (n, M), each clipped to a norm, or zero if nothing bounds it: in place."""
    factors, lost = clip_factors(vectors.norm(dim=1, keepdim=True), norm, factor)
    if lost is not None:
        vectors.masked_fill_(lost, 0.0)
    return vectors.mul_(factors)


def clip_layers(
    vectors: Tensor, norm: float, factor: ClipFactor, layers: Sequence[slice] | None
) -> Tensor:
    """The vectors (n, M), each of their n layers clipped to norm / sqrt(n), or zero if nothing
    bounds it: in place. So the whole is at most of that norm (McMahan et al. 2018, PerLayerClip).
    Without layers, their places in a vector, it is clipped as a whole."""
    if layers is None:
        return clip_rows(vectors, norm, factor)
    for layer in layers:
        clip_rows(vectors[:, layer], norm / sqrt(len(layers)), factor)
    return vectors


def try_clip_factor(factor: ClipFactor, algorithm: str) -> None:
    """Call an algorithm's own clip factor once, before anything is written. What it answers is not
    judged: `OneByOne` bounds it.

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
