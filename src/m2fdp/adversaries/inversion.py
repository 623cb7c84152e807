"""Reconstruction of images from a message, by search or exactly.

Searches look for images in [0, 1] whose message would be the one that was read:

- dlg (Zhu et al. 2019): least squares, images and labels together, by L-BFGS.
- idlg (Zhao et al. 2020): the same with labels read off the last layer.
- inverting (Geiping et al. 2020): one less the cosine, and total variation; signed Adam for a third
  of the iterations, then L-BFGS, which ends far closer.

A linear first layer is inverted exactly. With a bias b, row r of the gradient of its weights is
b_r times the input: one record's pixels are a ratio, whatever the layers above (Phong et al. 2018).
Without one the gradient of one record is an outer product of its errors and its pixels. The errors
follow from the model, the label, and how bright the image is, which is solved for.
"""

from collections.abc import Callable
from functools import partial
from math import inf, isfinite, prod

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.adversaries.config import AttackConfig
from m2fdp.adversaries.knowledge import Knowledge, Message, Sought, labels_by_rule, message_of
from m2fdp.core.errors import InputError

# Evaluations of L-BFGS between two times that images are put back into [0, 1].
_AT_A_TIME = 20
_ADAM_PART, _ADAM_STEP = 1 / 3, 0.1


def search(
    message: Message,
    knowledge: Knowledge,
    sought: Sought,
    config: AttackConfig,
    stream: np.random.Generator,
) -> dict[str, np.ndarray]:
    """One start of a method that searches, from images that are drawn: `images`, float32
    (n, C, H, W), in [0, 1]; their `labels`, int64 (n,); and their `misfit`, how far their message
    is from the one that was read, by the method's own measure."""
    # In 64 bits: what parts two images with nearly the same message is lost in the rounding of 32.
    target, start = message.gradient.double(), message.start.double()
    count, classes = len(sought), knowledge.n_classes
    images = torch.from_numpy(stream.random((count, *knowledge.shape)))
    logits = torch.from_numpy(stream.standard_normal((count, classes)))
    seeks_labels = config.method == "dlg"
    labels = None if seeks_labels else torch.tensor(labels_by_rule(message, knowledge, count))
    by_angle = config.method == "inverting"
    images.requires_grad_()
    sought_too = [images, logits.requires_grad_()] if seeks_labels else [images]

    def misfit() -> Tensor:
        one_hot = torch.eye(classes, dtype=target.dtype)
        chosen = logits.softmax(1) if labels is None else one_hot[labels]
        trial = message_of(images, chosen, knowledge, sought, start)
        if not by_angle:
            return (trial - target).square().sum()
        cosine = trial @ target / (trial.norm() * target.norm()).clamp_min(1e-30)
        return 1 - cosine + config.total_variation * _variation(images)

    begun = int(config.iterations * _ADAM_PART) if by_angle else 0
    if begun:
        _signed_adam(images, misfit, begun)
    _l_bfgs(sought_too, images, misfit, config.iterations - begun)
    with torch.no_grad():
        images.nan_to_num_(0.5).clamp_(0.0, 1.0)
    ended = float(misfit().detach())
    best_labels = logits.detach().argmax(1) if labels is None else labels
    return {
        "images": images.detach().float().numpy(),
        "labels": best_labels.numpy(),
        "misfit": np.array(ended if isfinite(ended) else inf),
    }


def _variation(images: Tensor) -> Tensor:
    """Mean differences between neighbouring pixels, down and across."""
    down = images[..., 1:, :] - images[..., :-1, :]
    across = images[..., 1:] - images[..., :-1]
    return down.abs().mean() + across.abs().mean()


def _signed_adam(images: Tensor, misfit: Callable[[], Tensor], iterations: int) -> None:
    optimiser = torch.optim.Adam([images], lr=_ADAM_STEP)
    for _ in range(iterations):
        optimiser.zero_grad()
        misfit().backward()
        assert images.grad is not None
        images.grad.sign_()
        optimiser.step()
        with torch.no_grad():
            images.clamp_(0.0, 1.0)


def _l_bfgs(
    variables: list[Tensor], images: Tensor, misfit: Callable[[], Tensor], iterations: int
) -> None:
    new = partial(torch.optim.LBFGS, tolerance_grad=1e-12, tolerance_change=1e-14)
    optimiser = new(variables, max_iter=_AT_A_TIME, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = misfit()
        value.backward()
        return value.detach()

    for _ in range(-(-iterations // _AT_A_TIME)):
        value = optimiser.step(closure)
        if not bool(torch.isfinite(value)):
            return
        with torch.no_grad():
            images.clamp_(0.0, 1.0)


# Brightnesses that are tried before the best of them is refined, and how often that is done.
_BRIGHTNESSES, _REFINEMENTS = 400, 60


def check_linear_first_layer(knowledge: Knowledge) -> nn.Linear:
    """The layer that pixels enter; an `InputError` where it is not linear."""
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
    """The image (C, H, W) in [0, 1] that explains a message, or a blend of those that do; its label
    counts only where the first layer has no bias."""
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
    low, high = tried[first - 1] if first else tried.new_zeros(()), tried[first]
    for _ in range(_REFINEMENTS):
        middle = (low + high) / 2
        if float(excess(middle[None])) >= 0:
            high = middle
        else:
            low = middle
    return direction * high
