"""A small convolutional network that has learnt from drawings to tell which show the same thing.

Its weights were learnt once, from public images alone (Chen et al. 2020), and are part of the
package; `tools.pretraining` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate

from m2fdp.features.windows import averaged

FILE = Path(__file__).with_suffix(".npz")
# Of the drawings that it has learnt from, in pixels.
SIDE = 28
# A side, over whose windows the last maps are averaged.
CELLS = 4
# Added to an image's deviation, lest the noise of what has no contrast become its content.
_FLAT = 0.05


@dataclass(frozen=True)
class Layer:
    """A convolution whose outputs are rectified.

    Attributes:
        channels: the number of its outputs.
        side: pixels of its kernels' side.
        stride: pixels from one output to the next.
    """

    channels: int
    side: int
    stride: int


LAYERS = (Layer(32, 5, 2), Layer(64, 3, 1), Layer(128, 3, 2), Layer(128, 3, 1))
N_RESPONSES = LAYERS[-1].channels * CELLS**2


def responses(images: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """The last layer's maps of grey images (n, 1, H, W) in [0, 1], averaged over windows: (n, m).

    Args:
        weights: the kernels and offsets of each layer; see `shipped`.
    """
    if images.shape[2:] != (SIDE, SIDE):
        images = interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=True)
    maps = contrasted(images)
    for number, layer in enumerate(LAYERS):
        kernels, offsets = weights[f"kernels_{number}"], weights[f"offsets_{number}"]
        maps = conv2d(maps, kernels, offsets, layer.stride, layer.side // 2).relu_()
    return averaged(maps, (CELLS, CELLS)).flatten(1)


def contrasted(images: Tensor) -> Tensor:
    """Images (n, C, H, W) less their own mean, divided by their own deviation."""
    deviations, means = torch.std_mean(images, dim=(1, 2, 3), keepdim=True)
    return (images - means) / (deviations + _FLAT)


@cache
def shipped() -> dict[str, Tensor]:
    """The weights that come with the package, float32: of layer k from 0 `kernels_k`, (channels,
    channels before, side, side), and `offsets_k`, (channels,)."""
    with np.load(FILE) as stored:
        return {name: torch.as_tensor(stored[name]).float() for name in stored.files}


@cache
def network_source() -> dict[str, str]:
    """The network with a digest of the file that its weights lie in."""
    digest = blake2b(FILE.read_bytes(), digest_size=16).hexdigest()
    return {"contrastive network trained on drawings": digest}
