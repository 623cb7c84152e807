"""Exact inversion of a linear first layer.

With a bias b, row r of the gradient of its weights is that of b_r times the input: one record's
pixels are a ratio, whatever the layers above (Phong et al. 2018). Without one (softmax, logistic,
svm) the gradient of one record is an outer product of its errors and its pixels; the errors follow
from the model, the label, and how bright the image is, which is solved for. Of several records the
result is a blend.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from m2fdp.adversaries.knowledge import Knowledge, Message
from m2fdp.core.errors import InputError

# Brightnesses that are tried before the best of them is refined, and how often that is done.
_BRIGHTNESSES, _REFINEMENTS = 400, 60


def check_linear_first_layer(knowledge: Knowledge) -> nn.Linear:
    """The layer that pixels enter, which can be inverted.

    Raises:
        InputError: it is not linear.
    """
    parts = knowledge.model.module.modules()
    layer = next((one for one in parts if any(True for _ in one.parameters(recurse=False))), None)
    if not isinstance(layer, nn.Linear):
        raise InputError(
            "attack.method",
            "analytic",
            f"inverts a linear first layer, which model {knowledge.model.name} has not; use "
            "softmax, logistic, svm, dense, or another method",
        )
    return layer


def invert(message: Message, knowledge: Knowledge, label: int) -> Tensor:
    """The image (C, H, W) in [0, 1] that explains a message, or a blend of those that do.

    Args:
        label: the label of the record; it counts only where the layer has no bias.

    Raises:
        InputError: the model's first layer is not linear.
    """
    layer = check_linear_first_layer(knowledge)
    named = knowledge.model.unflatten(message.gradient.double())
    name = next(name for name, part in knowledge.model.module.named_modules() if part is layer)
    weights = named[f"{name}.weight"]
    if f"{name}.bias" in named:
        bias = named[f"{name}.bias"]
        pixels = bias @ weights / bias.square().sum().clamp_min(1e-300)
    else:
        pixels = _without_bias(message, knowledge, weights, label)
    return pixels.clamp(0.0, 1.0).float().view(knowledge.shape)


def _without_bias(message: Message, knowledge: Knowledge, weights: Tensor, label: int) -> Tensor:
    """Pixels (d,) from the outer product, of norm s ‖e(s)‖ at brightness s."""
    _, singular, right = torch.linalg.svd(weights, full_matrices=False)
    direction = right[0] * right[0].sum().sign()
    size = float(singular[0])
    norm = knowledge.record_norm or knowledge.device_norm
    if norm is not None and size > norm * (1 - 1e-4):  # clipped: as bright as images are
        return direction / direction.max()
    model, start = knowledge.model, message.start.double()
    scores_at_one = model.scores(start, direction.view(1, *knowledge.shape))[0]
    label_there = torch.tensor([label])

    def excess(brightness: Tensor) -> Tensor:
        scores = scores_at_one[:, None] * brightness
        errors = model.score_gradients(scores, label_there.expand(len(brightness)))
        return brightness * errors.norm(dim=0) - size

    brightest = prod(knowledge.shape) ** 0.5
    tried = torch.linspace(0.0, brightest, _BRIGHTNESSES + 1, dtype=torch.float64)[1:]
    values = excess(tried)
    too_bright = torch.nonzero(values >= 0)
    if not len(too_bright):
        return direction * tried[values.abs().argmin()]
    first = int(too_bright[0])
    low = tried[first - 1] if first else tried.new_zeros(())
    high = tried[first]
    for _ in range(_REFINEMENTS):
        middle = (low + high) / 2
        if float(excess(middle[None])) >= 0:
            high = middle
        else:
            low = middle
    return direction * high
