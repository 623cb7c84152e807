"""Clipping: factors that bound norms, whatever the gradients are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import torch
from torch import Tensor

from m2fdp.errors import InputError

# From norms (…) and the clipping norm C to factors (…): no norm times its factor is above C.
ClipFactor = Callable[[Tensor, float], Tensor]

# Rounding may add so much to a clipped norm.
_ROUNDING = 1e-5


def flat_clip(norms: Tensor, clipping_norm: float) -> Tensor:
    """min(1, clipping norm / norm), and 1 for a zero norm."""
    return (clipping_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)


def unbounded(norms: Tensor, clipping_norm: float) -> Tensor | None:
    """Which gradients no clip factor can bound; None where there is none, as there should be.

    Their norm is not finite, or so large that the factor has hardly a digit left. They count as
    zero, but not by a factor of 0: that leaves what is not finite as it is.
    """
    largest = clipping_norm / torch.finfo(norms.dtype).tiny
    if float(norms.sum()) <= largest:
        return None
    return ~((norms <= largest) & norms.isfinite())


def clip_rows(vectors: Tensor, norm: float, factor: ClipFactor) -> Tensor:
    """The vectors (n, M), each clipped to a norm, or zero if nothing bounds it: in place."""
    norms = vectors.norm(dim=1, keepdim=True)
    lost = unbounded(norms, norm)
    if lost is not None:
        vectors.masked_fill_(lost, 0.0)
        norms.masked_fill_(lost, 0.0)
    return vectors.mul_(factor(norms, norm))


def clip_layers(
    vectors: Tensor, norm: float, factor: ClipFactor, layers: Sequence[slice] | None
) -> Tensor:
    """The vectors (n, M), each of their n layers clipped to norm / sqrt(n), or zero if nothing
    bounds it: in place. So the whole is at most of that norm (McMahan et al. 2018, PerLayerClip).

    Args:
        layers: places in a vector; None clips it as a whole.
    """
    if layers is None:
        return clip_rows(vectors, norm, factor)
    for layer in layers:
        clip_rows(vectors[:, layer], norm / sqrt(len(layers)), factor)
    return vectors


def check_clip_factor(factor: ClipFactor, algorithm: str) -> None:
    """Refuse a rule of an algorithm's own that leaves a norm above C: all of privacy rests on it.

    Raises:
        InputError: it does at one of many norms and values of C, or gives no factor a norm.
    """
    norms = torch.cat([torch.zeros(1), torch.logspace(-12, 30, 2001)])
    for clipping_norm in (1e-3, 0.5, 1.0, 7.3, 1e3):
        factors = factor(norms, clipping_norm)
        if factors.shape != norms.shape or not bool((factors >= 0).all()):
            raise InputError(
                "algorithm", algorithm, "has a clip_factor that gives no factor a norm"
            )
        if bool((factors * norms > clipping_norm * (1 + _ROUNDING)).any()):
            raise InputError(
                "algorithm",
                algorithm,
                f"has a clip_factor that leaves norms above the clipping norm {clipping_norm:g}",
            )
