"""The contrastive network learns, from drawings alone: `python -m tools.pretraining`.

SimCLR (Chen et al. 2020): of a batch of drawings the network sees two views each, and is to tell
by cosines which belong together. What differs between views it learns to overlook.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import cos, pi
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample, interpolate, normalize
from torch.nn.utils import fuse_conv_bn_eval

from m2fdp.core.files import replacing
from m2fdp.features.drawings import deformed, drawn_again
from m2fdp.features.maps import (
    CELLS,
    FILE,
    LAYERS,
    N_RESPONSES,
    SIDE,
    Layer,
    averaged,
    contrasted,
    network_source,
)
from m2fdp.features.public import public_images

# Nobody's privacy depends on it: what the network sees is public.
_SEED = 20_119
_N_DRAWINGS, _N_VIEWS = 24_000, 6
_AT_A_TIME = 2_000  # drawings
_STEPS, _BATCH = 4_000, 256
_RATE, _DECAY, _WARM_UP = 2e-3, 1e-4, 50
_TEMPERATURE = 0.2
# Of what the loss compares: it may forget more of an image than the maps below it.
_HIDDEN, _COMPARED = 256, 128
# Deviations of the logarithms of scale and contrast, and of smooth light; bounds of a shift, as a
# share of half a side, and of the deviation of a pixel's noise.
_LOG_SCALE, _LOG_CONTRAST, _LIGHT = 0.1, 0.4, 0.2
_SHIFT, _NOISE = 0.14, 0.05
# Of the grid that smooth light lies on.
_LIGHTS = 4
_STEPS_BETWEEN_LINES = 100


class Block(nn.Module):
    """A layer as it learns: its outputs are normalised over the batch."""

    def __init__(self, channels: int, layer: Layer) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            channels, layer.channels, layer.side, layer.stride, layer.side // 2, bias=False
        )
        self.norm = nn.BatchNorm2d(layer.channels)

    def forward(self, maps: Tensor) -> Tensor:
        return self.norm(self.convolution(maps)).relu_()


class Network(nn.Module):
    """The network as it learns, with what the loss compares on top: images (n, 1, 28, 28) in
    [0, 1] to vectors (n, d) of length one."""

    def __init__(self) -> None:
        super().__init__()
        channels = [1, *(layer.channels for layer in LAYERS)]
        self.blocks = [Block(*each) for each in zip(channels, LAYERS, strict=False)]
        self.layers = nn.Sequential(*self.blocks)
        self.head = nn.Sequential(
            nn.Linear(N_RESPONSES, _HIDDEN),
            nn.BatchNorm1d(_HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, _COMPARED),
        )

    def responses(self, images: Tensor) -> Tensor:
        """See `m2fdp.features.maps.responses`."""
        return averaged(self.layers(contrasted(images)), (CELLS, CELLS)).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        return normalize(self.head(self.responses(images)), dim=1)

    def folded(self) -> dict[str, Tensor]:
        """The weights of the trained layers, with what normalises them, as
        `m2fdp.features.maps.responses` takes them."""
        weights: dict[str, Tensor] = {}
        for number, block in enumerate(self.blocks):
            fused = fuse_conv_bn_eval(block.convolution, block.norm).state_dict()
            weights |= {f"kernels_{number}": fused["weight"], f"offsets_{number}": fused["bias"]}
        return weights


def draw_views(n: int, rng: np.random.Generator) -> Tensor:
    """Drawings that people would take for the same thing: uint8 (n, k, 28, 28).

    Outlines are shaded otherwise and filled with other leaves, characters are of another font, and
    all are deformed.
    """
    textures = public_images("leaves").draw(n, (1, SIDE, SIDE))
    drawn = np.empty((n, _N_VIEWS, SIDE, SIDE), dtype=np.uint8)
    for start in range(0, n, _AT_A_TIME):
        here = drawn[start : start + _AT_A_TIME]
        chosen = [textures[rng.choice(n, len(here), replace=False)] for _ in range(_N_VIEWS)]
        for number, images in enumerate(drawn_again(chosen, rng)):
            moved = deformed(torch.as_tensor(images), rng)
            here[:, number] = (moved[:, 0] * 255).round().byte().numpy()
    return torch.as_tensor(drawn)


def train(
    views: Tensor, steps: int, on_step: Callable[[int, float], None] = lambda step, loss: None
) -> Network:
    """A network that tells which views are of the same drawing.

    Args:
        views: uint8 (n, k, 28, 28), of no fewer drawings than a batch has.
        on_step: listener, called with how many steps are done and the last one's loss.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        # The channels of a place side by side take two thirds of the time.
        network = Network()
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rng, generator = np.random.default_rng(_SEED), torch.Generator().manual_seed(_SEED)
    optimiser = torch.optim.AdamW(network.parameters(), _RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / _WARM_UP) * (1 + cos(pi * step / steps)) / 2
    )
    for step in range(steps):
        chosen = rng.choice(len(views), _BATCH, replace=False)
        pairs = rng.random((_BATCH, views.shape[1])).argsort(axis=1)[:, :2].T
        images = views[np.tile(chosen, 2), pairs.reshape(-1)][:, None] / 255
        batch = augmented(images, generator).contiguous(memory_format=torch.channels_last)
        loss = contrastive_loss(network(batch))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        on_step(step + 1, loss.item())
    return network.eval()


def contrastive_loss(compared: Tensor) -> Tensor:
    """NT-Xent, the cross-entropy of finding the other view of the same drawing among all others.

    Args:
        compared: (2 n, d) of length one, the first views of n drawings before the second ones.
    """
    cosines = compared @ compared.T / _TEMPERATURE
    others = cosines.masked_fill(torch.eye(len(compared), dtype=torch.bool), float("-inf"))
    partners = torch.arange(len(compared)).roll(len(compared) // 2)
    return cross_entropy(others, partners)


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images (n, 1, H, W) in [0, 1], each scaled, shifted, of another contrast, lit unevenly and
    with noise, so that no view is seen twice; what comes in from outside is black."""
    n = len(images)

    def normal(*shape: int) -> Tensor:
        return torch.randn(n, *shape, generator=generator)

    affine = torch.diag_embed((_LOG_SCALE * normal(2)).exp())
    shifts = _SHIFT * (2 * torch.rand(n, 2, 1, generator=generator) - 1)
    grid = affine_grid(torch.cat([affine, shifts], dim=2), list(images.shape), align_corners=False)
    moved = grid_sample(images, grid, align_corners=False).clamp(0, 1)
    contrasts = (_LOG_CONTRAST * normal(1, 1, 1)).exp()
    light = interpolate(normal(1, _LIGHTS, _LIGHTS), images.shape[2:], mode="bilinear")
    noise = _NOISE * torch.rand(n, 1, 1, 1, generator=generator) * normal(*images.shape[1:])
    return moved**contrasts * (1 + _LIGHT * light) + noise


def write(network: Network, file: Path) -> None:
    """The weights that the map needs, in half precision: features are the same to three digits."""
    weights = {name: weight.half().numpy() for name, weight in network.folded().items()}
    with replacing(file) as unfinished:
        np.savez(unfinished, allow_pickle=False, **weights)


def main() -> None:
    """Train and write the file that the package ships."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=_STEPS)
    steps = parser.parse_args().steps
    # Sums of several threads differ in their last bits, by how many threads there are.
    torch.set_num_threads(1)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("contrastive network", total=steps)

        def on_step(step: int, loss: float) -> None:
            progress.update(task, completed=step)
            if step % _STEPS_BETWEEN_LINES == 0:
                progress.console.print(f"step {step:,}: loss {loss:.3f}")

        network = train(draw_views(_N_DRAWINGS, np.random.default_rng(_SEED)), steps, on_step)
    write(network, FILE)
    print(f"{FILE}: {network_source()}")


if __name__ == "__main__":
    main()
