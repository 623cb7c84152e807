"""What is measured: the works, their data and their models, the same for every contender."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.models import losses
from m2fdp.core.models.registry import Model, build_model

Privacy = Literal["none", "untrusted", "half", "trusted"]

N_CLASSES = 10
N_TEST = 2000
CLIPPING_NORM = 1.0
# Rounds before the clock counts: caches, thread pools and allocators settle.
WARM_UP = 2
_SPREAD = 4.0  # of which hardly a record leaves the range from -1 to 1
_RECORDS_AT_A_TIME = 1000


@dataclass(frozen=True)
class Work:
    """One federated training that every contender does.

    Attributes:
        name: in tables.
        model: `linear`, `mlp`, `lenet` or `cnn12`.
        shape: (C, H, W) of a record.
        fanouts: the tree, from the cloud down; their product is the number of devices.
        records: held by each device.
        batch: records of a minibatch (the expected number where sampling is Poisson).
        epochs: passes over a device's records in a round.
        learning_rate: of the devices' plain SGD.
        signal: standard deviation of the classes' means over that of a record's noise, such
            that accuracies end between chance and one, where a difference shows.
        privacy: `none`; else clipped and noised, at each device (`untrusted`), once for all devices
            of a server of layer 1 (`trusted`), or at `half` of the servers the one and below the
            others the other.
        rounds: turns of a race; in those behind the first `WARM_UP` a timed round follows another.
        seed: of data and initial weights.
        mechanism: `gradient`, noise and records' clipping at every step; or `upload`, noise in
            what is sent, and minibatches' clipping.
        noise_multiplier: of the noise of every step, in units of the clipping norm.
        local_aggregation: steps from one local aggregation at layer 1 to the next, if there are
            any.
    """

    name: str
    model: Literal["linear", "mlp", "lenet", "cnn12"]
    shape: tuple[int, int, int]
    fanouts: tuple[int, ...]
    records: int
    batch: int
    epochs: int
    learning_rate: float
    signal: float
    privacy: Privacy
    rounds: int
    seed: int = 0
    mechanism: Literal["gradient", "upload"] = "gradient"
    noise_multiplier: float = 0.5
    local_aggregation: int | None = None

    @property
    def devices(self) -> int:
        return prod(self.fanouts)

    @property
    def local_steps(self) -> int:
        """K: minibatch steps of a device in a round."""
        return self.epochs * math.ceil(self.records / self.batch)

    @property
    def most_rounds(self) -> int:
        """How many a race asks a contender for, at most; who is done before does nothing, fast."""
        return 2 * self.rounds

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def work_from_json(values: dict[str, Any]) -> Work:
    """The inverse of `Work.to_json` after a trip through JSON, which knows no tuples."""
    return Work(**values | {"shape": tuple(values["shape"]), "fanouts": tuple(values["fanouts"])})


_SMALL, _GREY, _COLOUR = (1, 8, 8), (1, 28, 28), (3, 32, 32)
# The four models of the comparison: 50 devices x 50 records, batches of 10, one epoch.
COMPARED = {
    work.name: work
    for work in (
        Work("a linear", "linear", _GREY, (10, 5), 50, 10, 1, 0.1, 0.2, "none", 22),
        Work("b mlp", "mlp", _GREY, (10, 5), 50, 10, 1, 0.1, 0.3, "none", 22),
        Work("c lenet", "lenet", _GREY, (10, 5), 50, 10, 1, 0.3, 0.8, "none", 16),
        Work("d cnn12", "cnn12", _COLOUR, (10, 5), 50, 10, 1, 0.1, 1.0, "none", 12),
    )
}
# The default run on Fashion-MNIST: 60,000 records in whole shards, one step a round.
WHOLE = Work("g whole shards", "linear", _GREY, (10, 5), 1200, 1200, 1, 0.5, 0.2, "half", 22)
# Many devices with 6 records each; five steps over the whole shard.
_MANY = Work("e linear", "linear", _GREY, (10, 10), 6, 6, 5, 0.1, 0.3, "none", 8)
# One run on more and more devices with 6 small records each; uploads are noised.
_SCALE = Work(
    "h scale", "linear", _SMALL, (10, 100), 6, 6, 5, 0.1, 0.5, "half", 10, mechanism="upload"
)
MINIBATCHES = "h scale: minibatches"
_SCALE_FANOUTS = ((10, 100), (100, 100), (100, 200), (100, 1000))
# In minibatches a device takes ten steps, with a local aggregation after the fifth.
SCALE = {
    group: tuple(replace(work, fanouts=fanouts) for fanouts in _SCALE_FANOUTS)
    for group, work in (
        (MINIBATCHES, replace(_SCALE, batch=3, local_aggregation=5)),
        ("h scale: whole shards", _SCALE),
    )
}


def proof(work: Work) -> Work:
    """The same work with nothing left to chance: two rounds of two steps over whole shards, without
    noise worth the name. All who do it must end at the same weights."""
    return replace(work, batch=work.records, epochs=2, rounds=2, noise_multiplier=1e-9)


def private(work: Work, privacy: Privacy) -> Work:
    """The same work under another privacy."""
    return replace(work, privacy=privacy)


def many_devices(fanouts: tuple[int, ...], privacy: Privacy = "none") -> Work:
    """6 Fashion-MNIST-sized records a device, on a tree of those fan-outs."""
    return replace(_MANY, fanouts=fanouts, privacy=privacy)


@dataclass(frozen=True, eq=False)
class Data:
    """Training records in device order, `work.records` a device, and test records.

    Attributes:
        features, test_features: float32 (R, C, H, W).
        labels, test_labels: int64 (R,).
    """

    features: Tensor
    labels: Tensor
    test_features: Tensor
    test_labels: Tensor


def build_data(work: Work, device: str = "cpu") -> Data:
    """Gaussian records around one smooth mean a class, brought into [0, 1] by constants, dark where
    they are below zero, as pixels are; all devices draw from the same law.

    Records are made in parts straight into one array, so that a process's peak memory is that
    of its training and not of its data's making.
    """
    generator = torch.Generator().manual_seed(work.seed)
    channels, height, width = work.shape
    coarse = torch.randn(N_CLASSES, channels, height // 4, width // 4, generator=generator)
    means = work.signal * nn.functional.interpolate(coarse, (height, width))

    def draw(size: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(N_CLASSES, (size,), generator=generator)
        features = torch.empty(size, *work.shape)
        for part in torch.arange(size).split(_RECORDS_AT_A_TIME):
            here = slice(int(part[0]), int(part[-1]) + 1)
            features[here].normal_(generator=generator).add_(means[labels[here]])
        features.div_(_SPREAD).clamp_(0.0, 1.0)
        return features.to(device), labels.to(device)

    return Data(*draw(work.devices * work.records), *draw(N_TEST))


def shards(work: Work, data: Data) -> list[tuple[Tensor, Tensor]]:
    """(features, labels) of each device, as views."""
    return list(
        zip(data.features.split(work.records), data.labels.split(work.records), strict=True)
    )


def build_work_model(work: Work) -> Model:
    """The model with its initial weights; peers train a copy of its module."""
    match work.model:
        case "linear":
            return build_model(ModelConfig(name="softmax"), work.shape, N_CLASSES, work.seed)
        case "cnn12":
            return build_model(ModelConfig(name="cnn12"), work.shape, N_CLASSES, work.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(work.seed)
        module = _mlp(work.shape) if work.model == "mlp" else _lenet(work.shape)
    return Model(work.model, module, losses.cross_entropy, linear=False)


def _mlp(shape: tuple[int, int, int]) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), 128), nn.ReLU(), nn.Linear(128, N_CLASSES)
    )


def _lenet(shape: tuple[int, int, int]) -> nn.Module:
    """LeNet-5's sizes (61,706 parameters on 28 x 28), with ReLU and max pooling."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (height // 4 - 2) * (width // 4 - 2), 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, N_CLASSES),
    )
