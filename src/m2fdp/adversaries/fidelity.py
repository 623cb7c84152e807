"""How alike two images are, and how many labels are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf, log10

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

# Wang et al. 2004: a Gaussian window of 11 pixels, deviation 1.5, and two constants for values in
# [0, 1].
_WINDOW, _DEVIATION = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2


def psnr(image: Tensor, truth: Tensor) -> float:
    """Peak signal to noise ratio in dB of an image (C, H, W) in [0, 1]; infinite if it is equal."""
    error = float((image.double() - truth.double()).square().mean())
    return -10 * log10(error) if error > 0 else inf


def ssim(image: Tensor, truth: Tensor) -> float:
    """Structural similarity (Wang et al. 2004) of images (C, H, W) in [0, 1]: the mean over places
    where the window fits, and channels. In images below 11 pixels the window is the largest odd
    one that fits."""
    size = min(_WINDOW, *(side - 1 + side % 2 for side in image.shape[-2:]))
    places = torch.arange(size, dtype=torch.float64) - size // 2
    line = torch.exp(-places.square() / (2 * _DEVIATION**2))
    line = line / line.sum()
    window = (line[:, None] * line)[None, None]
    x, y = image.double()[:, None], truth.double()[:, None]

    def mean(values: Tensor) -> Tensor:
        return functional.conv2d(values, window)

    of_x, of_y = mean(x), mean(y)
    var_x, var_y = mean(x * x) - of_x**2, mean(y * y) - of_y**2
    both = mean(x * y) - of_x * of_y
    ratio = (2 * of_x * of_y + _C1) * (2 * both + _C2)
    return float((ratio / ((of_x**2 + of_y**2 + _C1) * (var_x + var_y + _C2))).mean())


def matched(images: Tensor, truths: Tensor) -> np.ndarray:
    """For each image (n, C, H, W) the truth (N, C, H, W), N at least n, that it stands for: int64
    (n,), all different, such that squared errors are least in all."""
    errors = (images[:, None].double() - truths[None].double()).square().flatten(2).mean(-1)
    rows, columns = linear_sum_assignment(errors.numpy())
    return columns[np.argsort(rows)].astype(np.int64)


def labels_right(labels: Sequence[int], truths: Sequence[int]) -> float:
    """The share of labels, in any order, that are among the truths as often."""
    return (Counter(labels) & Counter(truths)).total() / len(labels)
