"""The setting of colour features is chosen on made-up sets: `python -m tools.choosing OUT.csv`.

The rule: of the grid of dimensions, ridges and weights take the setting with the highest accuracy
at epsilon = 1, averaged over six sets and over 1, 10 and 50 noises. Then rounds, the constant of
accumulated noise and the clipping norm are varied one at a time about `BEFORE`; one changes only if
that average rises by more than 0.003.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn.functional import one_hot

from m2fdp.core.privacy.accounting import gaussian_shift
from m2fdp.features.config import FeaturesConfig
from m2fdp.features.projection import by_invariance, by_variance, whitened
from m2fdp.features.recipe import Fit, recipe_of
from tools.made_up import CLASSES, SETS, SIDE

_N_DRAWN, _N_TRAIN, _N_TEST = 10_000, 4_000, 1_500
_AT_A_TIME = 25  # images
# Noise is that of 50,000 records: of the Gaussian mechanism's one release, over the clipping norm.
_N_RECORDS, _NOISE_MULTIPLIER = 50_000, 1 / gaussian_shift(1.0, 1e-5)
_MOMENTUM, _LONGEST_STEP = 0.5, 720.0
NOISES = (1, 10, 50)
LEAST_RISE = 0.003


@dataclass(frozen=True)
class Setting:
    """What is chosen.

    Attributes:
        dimension: features of each of the two maps.
        ridge: what is added to public variances, as a share of the largest.
        weights: variance or invariance.
        rounds: T.
        accumulated_noise: the deviation that noise alone may give a parameter.
        clipping_norm: C.
    """

    dimension: int = 800
    ridge: float = 0.003
    weights: str = "invariance"
    rounds: int = 30
    accumulated_noise: float = 1.0
    clipping_norm: float = 0.3


# What colour features had, but for weights by invariance.
BEFORE = Setting()
GRID = tuple(
    replace(BEFORE, dimension=dimension, ridge=ridge, weights=weights)
    for dimension in (500, 800, 1_100)
    for ridge in (0.001, 0.003, 0.01)
    for weights in ("variance", "invariance")
)
VARIED: Mapping[str, tuple[Any, ...]] = {
    "rounds": (20, 45),
    "accumulated_noise": (0.7, 1.4),
    "clipping_norm": (0.15, 0.6),
}
ALONE = tuple(replace(BEFORE, **{key: value}) for key in VARIED for value in VARIED[key])


@dataclass(frozen=True)
class FittedMap:
    """A map fitted on leaves, and how deformations move its components, (d, d)."""

    fit: Fit
    moved: Tensor


def fitted() -> list[FittedMap]:
    """Both maps, with as many axes as any setting takes."""
    most = 2 * max(setting.dimension for setting in GRID)
    config = FeaturesConfig(map="both", public="leaves", dimension=most)
    recipe = recipe_of(config, (3, SIDE, SIDE))
    fits = recipe.fit()
    return [FittedMap(*each) for each in zip(fits, recipe.fit_moved(fits), strict=True)]


def components(fit: Fit, images: Tensor) -> Tensor:
    """Images (n, 3, H, W) to components (n, d) along a map's axes."""
    return torch.cat([fit(each) for each in images.split(_AT_A_TIME)])


def features(blocks: list[Tensor], maps: list[FittedMap], setting: Setting) -> Tensor:
    """Components of each map (n, d) to features of length one, (n, d in all)."""
    parts, kept = [], slice(setting.dimension)
    for block, each in zip(blocks, maps, strict=True):
        variances = each.fit.state["variances"][kept]
        if setting.weights == "variance":
            weights = by_variance(variances, setting.ridge)
        else:
            weights = by_invariance(variances, setting.ridge, each.moved[kept, kept])
        parts.append(whitened(block[:, kept].clone(), weights) / len(maps) ** 0.5)
    return torch.cat(parts, dim=1)


def accuracy(inputs: Tensor, labels: Tensor, setting: Setting, n_noises: int) -> float:
    """Of a softmax that learns from the first records behind noise and is tested on the last ones.

    Batches are full and the server has momentum, as in the engine; clipped gradients are averaged.

    Args:
        inputs: features (n, d) of length one.
        labels: classes, int64 (n,).
        n_noises: how many servers or devices add noise, each that of its own sum; 0 for none.
    """
    generator = torch.Generator().manual_seed(0)
    train, test = inputs[:_N_TRAIN], inputs[_N_TRAIN:]
    targets = one_hot(labels[:_N_TRAIN], CLASSES).float()
    clip, rounds = setting.clipping_norm, setting.rounds
    deviation = clip * _NOISE_MULTIPLIER * (rounds * n_noises) ** 0.5 / _N_RECORDS
    carried = np.cumsum(_MOMENTUM ** np.arange(rounds))
    accumulated = deviation * np.sqrt((carried**2).sum())
    step = (
        min(_LONGEST_STEP, setting.accumulated_noise / accumulated) if n_noises else _LONGEST_STEP
    )
    weights = torch.zeros(inputs.shape[1], CLASSES)
    velocity = torch.zeros_like(weights)
    for _ in range(rounds):
        errors = (train @ weights).softmax(1) - targets
        # Inputs have length one: a record's gradient is as long as its error.
        factors = (clip / errors.norm(dim=1, keepdim=True)).clamp(max=1)
        gradient = train.T @ (errors * factors) / len(train)
        noise = deviation * torch.randn(weights.shape, generator=generator)
        velocity = _MOMENTUM * velocity - step * (gradient + noise)
        weights = weights + velocity
    return ((test @ weights).argmax(1) == labels[_N_TRAIN:]).float().mean().item()


def rows(maps: list[FittedMap]) -> Iterator[dict[str, object]]:
    """A row a set and a setting, with its accuracy behind each number of noises."""
    for name, made in SETS.items():
        images, classes = (each[: _N_TRAIN + _N_TEST] for each in made(_N_DRAWN))
        labels = torch.as_tensor(classes)
        blocks = [components(each.fit, torch.as_tensor(images)) for each in maps]
        for setting in (*GRID, *ALONE):
            inputs = features(blocks, maps, setting)
            accuracies = {f"noises_{n}": accuracy(inputs, labels, setting, n) for n in NOISES}
            yield {"set": name, **asdict(setting), **accuracies}


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracies of each setting, averaged over the sets, and `mean` over noises; best first."""
    keys = list(asdict(BEFORE))
    averaged = table.groupby(keys)[[f"noises_{n}" for n in NOISES]].mean()
    averaged["mean"] = averaged.mean(axis=1)
    return averaged.sort_values("mean", ascending=False).reset_index()


def choice(averaged: pd.DataFrame) -> Setting:
    """What the rule takes of `means`."""
    found = averaged.set_index(list(asdict(BEFORE)))["mean"]

    def mean(setting: Setting) -> float:
        return float(found[tuple(asdict(setting).values())])

    chosen = max(GRID, key=mean)
    for key, values in VARIED.items():
        best = max((replace(BEFORE, **{key: value}) for value in values), key=mean)
        if mean(best) - mean(BEFORE) > LEAST_RISE:
            chosen = replace(chosen, **{key: getattr(best, key)})
    return chosen


def main() -> None:
    """Choose, and write what was tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="file .csv for a row a set and a setting")
    out = parser.parse_args().out
    # Sums of several threads differ in their last bits, by how many threads there are.
    torch.set_num_threads(1)
    console = Console(stderr=True)
    with console.status("maps are fitted"):
        maps = fitted()
    every = len(SETS) * len(GRID + ALONE)
    table = pd.DataFrame(track(rows(maps), "settings on sets", total=every, console=console))
    table.to_csv(out, index=False)
    averaged = means(table)
    print(averaged.round(4).to_string(index=False))
    print(f"The rule takes {choice(averaged)}")


if __name__ == "__main__":
    main()
