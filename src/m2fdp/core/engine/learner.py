"""One learner between two aggregations: local steps, and a clip of where they lead.

An engine calls these pure functions for many learners at once, a device for itself.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.backends import Backend
from m2fdp.core.engine.clipping import clip_rows
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.rules import ClipFactor, LocalRule, flat_clip, refuse_too_long
from m2fdp.core.privacy.mechanisms import Clipping

_ALIGNED = 16  # numbers of 64 bytes

# Takes models (n, M) one clipped gradient step down, in place, on the minibatches of local step k.
DescendOn = Callable[[int, Minibatches, Tensor], None]
# Adds the noise of local step k to models (n, M), in place.
AddNoise = Callable[[int, Tensor], None]


@dataclass(frozen=True)
class Clip:
    """Bounds of a learner's gradients, updates and models; `layers` are the places of layers in a
    vector, where norms bound each layer."""

    norms: Clipping
    layers: Sequence[slice] | None = None
    factor: ClipFactor = flat_clip

    def clip(self, vectors: Tensor, norm: float) -> Tensor:
        """Clip vectors (n, M) to a norm, in place: each of L layers to norm / sqrt(L) (McMahan et
        al. 2018, PerLayerClip), or without layers the whole."""
        if self.layers is None:
            return clip_rows(vectors, norm, self.factor)
        for layer in self.layers:
            clip_rows(vectors[:, layer], norm / math.sqrt(len(self.layers)), self.factor)
        return vectors


@dataclass(frozen=True, eq=False)
class Units:
    """Units (see `Learners`): their learners' places int64 (u,), gradients' shares float64 (u,)."""

    owners: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, eq=False)
class StepRules:
    """What stays the same from one local step to the next."""

    rule: LocalRule
    eta: float
    clip: Clip
    descend: DescendOn
    add_noise: AddNoise
    noised_inside: bool = False  # noise comes right after the gradient step; else after the rule
    longest: float = math.inf  # length that a model may have before a step (`Rules.longest`)


def local_steps(
    rules: StepRules,
    models: Tensor,
    anchors: Tensor | None,
    minibatches: Sequence[Minibatches],
    first: int = 1,
) -> None:
    """Take the models (n, M) of some learners through local steps k = first, …, and clip their
    updates or the models as the mechanism says, in place.

    Raises:
        TooLongError: float32 rounding could reveal a record. Raised for the first such model;
            nothing derived from it has been sent.
    """
    norms, eta = rules.clip.norms, rules.eta
    lengths = []
    start = models.clone() if norms.update_norm is not None else models

    def descend(step: int, batches: Minibatches, models: Tensor) -> None:
        rules.descend(step, batches, models)
        if rules.noised_inside:
            rules.add_noise(step, models)

    for step, batches in enumerate(minibatches, start=first):
        if rules.longest != math.inf:
            lengths.append(torch.linalg.vector_norm(models, dim=1).max())
        rules.rule.step(models, anchors, eta, partial(descend, step, batches))
        if not rules.noised_inside:
            rules.add_noise(step, models)
    if lengths:
        for length in torch.stack(lengths).tolist():
            refuse_too_long(length, rules.longest, eta, "before a local step")
    if norms.update_norm is not None:
        torch.add(start, rules.clip.clip(models - start, eta * norms.update_norm), out=models)
    if norms.model_norm is not None:
        rules.clip.clip(models, norms.model_norm)


def gradient_step(
    backend: Backend,
    clip: Clip,
    eta: float,
    minibatches: Minibatches,
    models: Tensor,
    units: Units | None = None,
) -> None:
    """One clipped gradient step (J eq. 6) of some learners' models (n, M), in place, on the
    minibatches of their units; None = the learners themselves."""
    if clip.norms.batch_norm is None:
        backend.add_gradients(models, -eta, models, minibatches, clip.norms)
        return
    units = units or Units(np.arange(len(models)), np.ones(len(models)))
    gradients = unit_gradients(backend, clip, minibatches, models, units)
    owners = torch.as_tensor(units.owners, device=models.device)
    models.index_add_(0, owners, gradients, alpha=-eta)


def unit_gradients(
    backend: Backend, clip: Clip, minibatches: Minibatches, models: Tensor, units: Units
) -> Tensor:
    """Each unit's clipped gradient times its share, (u, M), at its learner's model of (n, M)."""
    owners = torch.as_tensor(units.owners, device=models.device)
    unit_models = torch.index_select(models, 0, owners, out=_apart(models, len(owners)))
    gradients = _apart(models, len(owners)).zero_()
    backend.add_gradients(gradients, 1.0, unit_models, minibatches, clip.norms)
    if clip.norms.batch_norm is not None:
        clip.clip(gradients, clip.norms.batch_norm)
    shares = torch.as_tensor(units.shares, device=models.device)
    return gradients.mul_(shares.to(models.dtype)[:, None])


def _apart(models: Tensor, n: int) -> Tensor:
    """Room for n vectors like these (…, M), each at a multiple of 64 bytes: sums round by that."""
    size = models.shape[-1]
    return models.new_empty(n, -(-size // _ALIGNED) * _ALIGNED)[:, :size]
