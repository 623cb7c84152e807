"""How features are set is chosen on made-up sets: `python -m tools.choosing KIND WHAT OUT.csv`.

KIND is `colour` or `grey`. WHAT is `insides`, of the maps: of windows that paths are averaged over
all that are tried, of patches each change alone about those that start. What has the highest
accuracy at epsilon = 1 is taken, averaged over sets and over 1, 10 and 50 noises; of grey images
also over many and few records.

Or it is a `setting`, for maps with the chosen insides, `many` or `few` records: of the grid of
dimensions, ridges and weights take the one with the highest such average. Then rounds, the constant
of accumulated noise and the clipping norm are varied one at a time about the setting before; one
changes only if that average rises by more than 0.003.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product, starmap
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn.functional import one_hot

from m2fdp.core.models.checks import Shape
from m2fdp.core.privacy.accounting import gaussian_shift
from m2fdp.features.config import FeaturesConfig
from m2fdp.features.maps import (
    MAPS,
    FeatureMap,
    PatchSettings,
    WaveSettings,
    of_patches,
    of_waves,
)
from m2fdp.features.projection import by_invariance, by_variance, whitened
from m2fdp.features.public import public_images
from m2fdp.features.recipe import N_PUBLIC, Fit, fitted_map, recipe_of
from tools.made_up import CLASSES, GREY_SETS, GREY_SIDE, SETS, SIDE, Labelled

_N_DRAWN, _N_TRAIN, _N_TEST = 10_000, 4_000, 1_500
_AT_A_TIME = 25  # images
# Of the Gaussian mechanism's one release, over the clipping norm.
_NOISE_MULTIPLIER = 1 / gaussian_shift(1.0, 1e-5)
_MOMENTUM, _LONGEST_STEP = 0.5, 720.0
NOISES = (1, 10, 50)
LEAST_RISE = 0.003


@dataclass(frozen=True)
class Setting:
    """What is chosen.

    Attributes:
        dimension: features of each map.
        ridge: what is added to public variances, as a share of the largest.
        weights: variance or invariance.
        rounds: T.
        accumulated_noise: the deviation that noise alone may give a parameter.
        clipping_norm: C.
    """

    dimension: int
    ridge: float
    weights: str = "invariance"
    rounds: int = 30
    accumulated_noise: float = 1.0
    clipping_norm: float = 0.3


@dataclass(frozen=True)
class Regime:
    """How many records noise is shared by, and the settings that are compared there.

    Attributes:
        before: what such images had, but for weights by invariance.
        dimensions, ridges: of the grid.
    """

    n_records: int
    before: Setting
    dimensions: tuple[int, ...]
    ridges: tuple[float, ...]

    @property
    def grid(self) -> list[Setting]:
        """Every dimension with every ridge and both weights."""
        return [
            replace(self.before, dimension=dimension, ridge=ridge, weights=weights)
            for dimension in self.dimensions
            for ridge in self.ridges
            for weights in ("variance", "invariance")
        ]

    @property
    def varied(self) -> dict[str, list[Setting]]:
        """By what is varied alone, the settings that differ in it from the one before."""
        values: Mapping[str, tuple[Any, ...]] = {
            "rounds": (self.before.rounds * 2 // 3, self.before.rounds * 3 // 2),
            "accumulated_noise": (0.7, 1.4),
            "clipping_norm": (0.15, 0.6),
        }
        return {
            key: [replace(self.before, **{key: value}) for value in values[key]] for key in values
        }

    @property
    def settings(self) -> list[Setting]:
        """All that are compared."""
        return [*self.grid, *(each for alone in self.varied.values() for each in alone)]


Insides = tuple[WaveSettings, PatchSettings]
# Of settings of patches: new values.
Change = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of images.

    Attributes:
        sets: what makes the made-up sets, by name.
        n_drawn: how many pictures of each are drawn, of which the first count.
        start: the insides that others are compared with.
        waves: windows that are tried.
        patches: changes that are tried, of each inside several.
    """

    shape: Shape
    maps: Literal["both", "all"]
    public: str
    sets: Mapping[str, Callable[[int], Labelled]]
    n_drawn: int
    regimes: Mapping[str, Regime]
    start: Insides
    waves: tuple[WaveSettings, ...]
    patches: tuple[tuple[Change, ...], ...]

    def made(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Images and classes of each set, those that are learnt from first."""
        kept = slice(_N_TRAIN + _N_TEST)
        drawn = {name: make(self.n_drawn) for name, make in self.sets.items()}
        return {
            name: (torch.as_tensor(images[kept]), torch.as_tensor(labels[kept]))
            for name, (images, labels) in drawn.items()
        }

    def insides(self) -> dict[str, Insides]:
        """By name the start, and what differs from it in windows or by one change of patches."""
        waves, patches = self.start
        return {
            "start": self.start,
            **{str(each): (each, patches) for each in self.waves if each != waves},
            **{
                str(change): (waves, replace(patches, **change))
                for changes in self.patches
                for change in changes
            },
        }


KINDS = {
    "colour": Kind(
        shape=(3, SIDE, SIDE),
        maps="both",
        public="leaves",
        sets=SETS,
        n_drawn=10_000,
        regimes={
            "many": Regime(50_000, Setting(800, 0.003), (500, 800, 1_100), (0.001, 0.003, 0.01))
        },
        start=(
            WaveSettings(cells=4, spread=0.5),
            PatchSettings(
                side=6, stride=2, padding=0, n_filters=400, ridge=0.1, threshold=1.0, cells=3
            ),
        ),
        waves=(WaveSettings(3, 0.5), WaveSettings(4, 0.7), WaveSettings(5, 0.5)),
        patches=(
            ({"side": 5}, {"side": 8}),
            ({"ridge": 0.03}, {"ridge": 0.3}),
            ({"threshold": 0.5}, {"threshold": 0.75}, {"threshold": 1.4}),
            ({"cells": 4},),
            ({"n_filters": 300}, {"n_filters": 600}),
        ),
    ),
    "grey": Kind(
        shape=(1, GREY_SIDE, GREY_SIDE),
        maps="all",
        public="drawings",
        sets=GREY_SETS,
        n_drawn=_N_TRAIN + _N_TEST,
        regimes={
            "many": Regime(
                60_000, Setting(500, 0.002), (250, 500, 750), (0.001, 0.002, 0.005, 0.01)
            ),
            "few": Regime(
                5_000, Setting(250, 0.01, rounds=20), (150, 250, 400), (0.005, 0.01, 0.02, 0.04)
            ),
        },
        start=(
            WaveSettings(cells=7, spread=0.5),
            PatchSettings(
                side=8, stride=1, padding=2, n_filters=160, ridge=0.3, threshold=0.25, cells=6
            ),
        ),
        waves=tuple(starmap(WaveSettings, product((5, 6, 7), (0.5, 0.7)))),
        patches=(
            ({"side": 6}, {"side": 10, "padding": 3}),
            ({"ridge": 0.1}, {"ridge": 1.0}),
            ({"threshold": 0.0}, {"threshold": 0.5}, {"threshold": 1.0}),
            ({"cells": 5}, {"cells": 7}),
            ({"n_filters": 100}, {"n_filters": 240}),
        ),
    ),
}


@dataclass(frozen=True)
class FittedMap:
    """A map fitted on public images, and how deformations move its components, (d, d)."""

    fit: Fit
    moved: Tensor


def fitted(kind: Kind) -> list[FittedMap]:
    """The product's maps, with as many axes as any setting takes."""
    most = len(MAPS[kind.maps]) * max(max(each.dimensions) for each in kind.regimes.values())
    config = FeaturesConfig(map=kind.maps, public=kind.public, dimension=most)
    recipe = recipe_of(config, kind.shape)
    fits = recipe.fit()
    return [FittedMap(*each) for each in zip(fits, recipe.fit_moved(fits), strict=True)]


def components(fit: Fit, images: Tensor) -> Tensor:
    """Images (n, C, H, W) to components (n, d) along a map's axes."""
    return torch.cat([fit(each) for each in images.split(_AT_A_TIME)])


def features(blocks: Sequence[Tensor], maps: Sequence[FittedMap], setting: Setting) -> Tensor:
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


def accuracy(
    inputs: Tensor, labels: Tensor, setting: Setting, n_noises: int, n_records: int
) -> float:
    """Of a softmax that learns from the first records behind noise and is tested on the last ones.

    Batches are full and the server has momentum, as in the engine; clipped gradients are averaged.

    Args:
        inputs: features (n, d) of length one.
        labels: classes, int64 (n,).
        n_noises: how many servers or devices add noise, each that of its own sum; 0 for none.
        n_records: of how many records the noise is.
    """
    generator = torch.Generator().manual_seed(0)
    train, test = inputs[:_N_TRAIN], inputs[_N_TRAIN:]
    targets = one_hot(labels[:_N_TRAIN], CLASSES).float()
    clip, rounds = setting.clipping_norm, setting.rounds
    deviation = clip * _NOISE_MULTIPLIER * (rounds * n_noises) ** 0.5 / n_records
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


def accuracies(
    inputs: Tensor, labels: Tensor, setting: Setting, n_records: int
) -> dict[str, float]:
    """Behind each number of noises."""
    return {f"noises_{n}": accuracy(inputs, labels, setting, n, n_records) for n in NOISES}


def setting_rows(kind: Kind, regime: Regime) -> Iterator[dict[str, object]]:
    """A row a set and a setting."""
    maps = fitted(kind)
    for name, (images, labels) in kind.made().items():
        blocks = [components(each.fit, images) for each in maps]
        for setting in regime.settings:
            inputs = features(blocks, maps, setting)
            found = accuracies(inputs, labels, setting, regime.n_records)
            yield {"set": name, **asdict(setting), **found}


def inside_rows(kind: Kind) -> Iterator[dict[str, object]]:
    """A row a set, a regime and what one value of the start may be instead."""
    made, channels = kind.made(), kind.shape[0]
    public = torch.as_tensor(public_images(kind.public).draw(N_PUBLIC, kind.shape))
    most = max(regime.before.dimension for regime in kind.regimes.values())
    known: dict[object, tuple[FittedMap, list[Tensor]]] = {}

    def of(key: object, map_: FeatureMap) -> tuple[FittedMap, list[Tensor]]:
        if key not in known:
            fit = fitted_map(map_, public, most)
            blocks = [components(fit, images) for images, _ in made.values()]
            # Weights by variance, which insides are compared by, take no deformations.
            known[key] = FittedMap(fit, torch.empty(0)), blocks
        return known[key]

    for name, (waves, patches) in kind.insides().items():
        parts = [
            of(waves, of_waves({channels: waves})),
            of(patches, of_patches({channels: patches})),
            *(of(each, each) for each in MAPS[kind.maps][2:]),
        ]
        maps, by_map = zip(*parts, strict=True)
        for (of_set, (_, labels)), *blocks in zip(made.items(), *by_map, strict=True):
            for of_regime, regime in kind.regimes.items():
                setting = replace(regime.before, weights="variance")
                found = accuracies(
                    features(blocks, maps, setting), labels, setting, regime.n_records
                )
                yield {"insides": name, "set": of_set, "regime": of_regime, **found}


def means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Accuracies by what is compared, averaged over all else; `mean` is over noises; best first."""
    averaged = table.groupby(keys)[[f"noises_{n}" for n in NOISES]].mean()
    averaged["mean"] = averaged.mean(axis=1)
    return averaged.sort_values("mean", ascending=False).reset_index()


def choice(averaged: pd.DataFrame, regime: Regime) -> Setting:
    """The setting that the rule takes of `means`."""
    found = averaged.set_index(list(asdict(regime.before)))["mean"]

    def mean(setting: Setting) -> float:
        return float(found[tuple(asdict(setting).values())])

    chosen = max(regime.grid, key=mean)
    for key, alone in regime.varied.items():
        best = max(alone, key=mean)
        if mean(best) - mean(regime.before) > LEAST_RISE:
            chosen = replace(chosen, **{key: getattr(best, key)})
    return chosen


def chosen_insides(averaged: pd.DataFrame, kind: Kind) -> Insides:
    """The insides that the rule takes of `means`."""
    means_of = averaged.set_index("insides")["mean"].to_dict()
    (waves, patches), tried = kind.start, [each for each in kind.waves if each != kind.start[0]]
    best_waves = max(tried, key=lambda each: means_of[str(each)])
    if means_of[str(best_waves)] > means_of["start"]:
        waves = best_waves
    for changes in kind.patches:
        best = max(changes, key=lambda change: means_of[str(change)])
        if means_of[str(best)] > means_of["start"]:
            patches = replace(patches, **best)
    return waves, patches


def main() -> None:
    """Choose, and write what was tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS, help="of images")
    parser.add_argument("what", choices=["insides", "many", "few"], help="is chosen")
    parser.add_argument("out", type=Path, help="file .csv for a row a set and what was tried")
    options = parser.parse_args()
    kind = KINDS[options.kind]
    # Sums of several threads differ in their last bits, by how many threads there are.
    torch.set_num_threads(1)
    if options.what == "insides":
        rows, keys = inside_rows(kind), ["insides"]
    elif options.what in kind.regimes:
        regime = kind.regimes[options.what]
        rows, keys = setting_rows(kind, regime), list(asdict(regime.before))
    else:
        parser.error(f"{options.kind} has {', '.join(kind.regimes)}")
    table = pd.DataFrame(track(rows, "accuracies", console=Console(stderr=True)))
    table.to_csv(options.out, index=False)
    averaged = means(table, keys)
    print(averaged.round(4).to_string(index=False))
    chosen = (
        chosen_insides(averaged, kind) if options.what == "insides" else choice(averaged, regime)
    )
    print(f"The rule takes {chosen}")


if __name__ == "__main__":
    main()
