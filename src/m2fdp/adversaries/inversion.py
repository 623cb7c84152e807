"""Reconstruction of images from a message, by search: DLG, iDLG and Inverting Gradients.

All of them look for images in [0, 1] whose message would be the one that was read.

- dlg (Zhu et al. 2019): least squares, images and labels together, by L-BFGS.
- idlg (Zhao et al. 2020): the same with labels read off the last layer.
- inverting (Geiping et al. 2020): one less the cosine, and total variation; signed Adam for a third
  of the iterations, then L-BFGS, which ends far closer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite

import numpy as np
import torch
from torch import Tensor

from m2fdp.adversaries.config import AttackConfig
from m2fdp.adversaries.kept import Arrays
from m2fdp.adversaries.knowledge import Knowledge, Message, Sought, labels_by_rule, message_of

# Evaluations of L-BFGS between two times that images are put back into [0, 1].
_AT_A_TIME = 20
_ADAM_PART, _ADAM_STEP = 1 / 3, 0.1


def search(
    message: Message,
    knowledge: Knowledge,
    sought: Sought,
    config: AttackConfig,
    stream: np.random.Generator,
) -> Arrays:
    """One start of a method that searches.

    Args:
        stream: what the first images are drawn from.

    Returns:
        `images`, float32 (n, C, H, W), in [0, 1]; their `labels`, int64 (n,); and their `misfit`:
        how far their message is from the one that was read, by the method's own measure.

    Raises:
        InputError: the model's last layer is not linear.
    """
    # In 64 bits: what parts two images with nearly the same message is lost in the rounding of 32.
    target, start = message.gradient.double(), message.start.double()
    count, classes = len(sought), knowledge.n_classes
    images = torch.from_numpy(stream.random((count, *knowledge.shape)))
    logits = torch.from_numpy(stream.standard_normal((count, classes)))
    seeks_labels = config.method == "dlg"
    labels = None
    if not seeks_labels:
        labels = torch.tensor(labels_by_rule(message, knowledge, count))
    by_angle = config.method == "inverting"
    images.requires_grad_()
    sought_too = [images, logits.requires_grad_()] if seeks_labels else [images]

    def misfit() -> Tensor:
        chosen = (
            logits.softmax(1) if labels is None else torch.eye(classes, dtype=target.dtype)[labels]
        )
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
    optimiser = torch.optim.LBFGS(
        variables,
        max_iter=_AT_A_TIME,
        tolerance_grad=1e-12,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

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
