"""What an attack is handed: a message as an observer reads it, and nothing of the state; what the
attacker knows of how it came about, and the message that some images would make.

It knows the model and the start, how gradients are clipped, and how many records each device has.
Of several local steps it takes all for one from the start, so that what it finds of them is less
than what is there.
"""

from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import Model

Shape = tuple[int, int, int]
# Random images that tell what a record adds to the last layer, and how much brighter than they
# records may be.
_IMAGES = 4
_BRIGHTNESSES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)


@dataclass(frozen=True, eq=False)
class Message:
    """What an observer reads of some devices at one moment, beside what everybody knows.

    Attributes:
        devices: int64 (n,), whose updates are in it and unknown to the observer.
        shares: float64 (n,), what each of their updates counts with in it.
        start: (M,), the model that updates are counted from.
        update: (M,), the sum of shares times updates, with all noise that is in it.
        steps: local steps that each device has taken since.
    """

    sees: str
    devices: np.ndarray
    shares: np.ndarray
    start: Tensor
    update: Tensor
    steps: int
    step_size: float

    @property
    def gradient(self) -> Tensor:
        """(M,), what the devices' steps went along, in their mean: over the sum of shares."""
        return self.update / (-self.step_size * self.steps * float(self.shares.sum()))

    @property
    def parts(self) -> np.ndarray:
        """float64 (n,), the shares over their sum."""
        return self.shares / self.shares.sum()


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What an attacker knows beside the message: the model, images' shape (C, H, W), int64 (N_L,)
    D_j, and the norms that each record's and each device's gradient is clipped to; None = it is
    not."""

    model: Model
    shape: Shape
    n_classes: int
    sizes: np.ndarray
    record_norm: float | None = None
    device_norm: float | None = None


@dataclass(frozen=True, eq=False)
class Sought:
    """Images of a message that are sought: int64 (n,), the place of each one's owner among the
    message's devices; float64 (devices, n), what it counts with in its owner's gradient; and
    float64 (devices,), what each owner counts with."""

    owners: np.ndarray
    weights: Tensor
    parts: Tensor

    def __len__(self) -> int:
        return len(self.owners)


def sought_in(message: Message, knowledge: Knowledge, limit: int) -> Sought:
    """At most so many images of a message, dealt to its devices in turn, up to what each has."""
    sizes = knowledge.sizes[message.devices]
    turns = [np.flatnonzero(sizes > turn) for turn in range(min(limit, int(sizes.max())))]
    dealt = np.concatenate(turns)[:limit]
    owners, places, counts = np.unique(dealt, return_inverse=True, return_counts=True)
    weights = torch.zeros(len(owners), len(dealt), dtype=torch.float64)
    weights[places, torch.arange(len(dealt))] = torch.as_tensor(1.0 / counts[places])
    parts = message.parts[owners]
    return Sought(places, weights, torch.as_tensor(parts / parts.sum(), dtype=torch.float64))


def message_of(
    images: Tensor, losses_of: Tensor, knowledge: Knowledge, sought: Sought, start: Tensor
) -> Tensor:
    """float64 (M,), the mean gradient that images (n, C, H, W) would make at a model (M,), where
    each label's loss counts as `losses_of` (n, classes) says; differentiable in both."""
    model, every = knowledge.model, torch.arange(knowledge.n_classes)

    def loss(vector: Tensor, image: Tensor, weights: Tensor) -> Tensor:
        scores = model.scores(vector, image[None])
        return (model.loss(scores.expand(len(every), -1), every) * weights).sum()

    by_record = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(start, images, losses_of)
    by_record = _clipped(by_record, knowledge.record_norm)
    by_device = _clipped(sought.weights @ by_record, knowledge.device_norm)
    return sought.parts @ by_device


def _clipped(vectors: Tensor, norm: float | None) -> Tensor:
    if norm is None:
        return vectors
    norms = vectors.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return vectors * (norm / norms).clamp_max(1.0)


def labels_by_rule(message: Message, knowledge: Knowledge, count: int) -> list[int]:
    """So many labels, read off the last layer.

    Of one record the row of the last layer's gradient that sums to least is its label's (Zhao et
    al. 2020), for what the layer is fed is not negative after sigmoids, ReLUs and of pixels. Of
    several the rows' sums are explained by what records of each label would add to them, which
    random images tell about (Wainakh et al. 2022): label by label, then by exchanging one at a
    time; at several brightnesses, of which the one that explains most counts.
    """
    rows = last_rows(message.gradient, knowledge).sum(1).double()
    if count == 1:
        return [int(rows.argmin())]
    templates = _templates(message, knowledge)
    best: tuple[float, list[int]] = (inf, [])
    for brightness in _BRIGHTNESSES:
        best = min(best, _explained(count * rows, brightness * templates, count))
    return best[1]


def _templates(message: Message, knowledge: Knowledge) -> Tensor:
    """float64 (classes, classes), what a record of each label adds to the sums of the rows."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(_IMAGES, *knowledge.shape, generator=generator, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    one_record = Sought(np.zeros(1, dtype=np.int64), one[None], one)
    start, result = message.start.double(), []
    for label in torch.eye(knowledge.n_classes, dtype=torch.float64):
        messages = torch.stack(
            [message_of(image[None], label[None], knowledge, one_record, start) for image in images]
        )
        result.append(last_rows(messages.mean(0), knowledge).sum(1))
    return torch.stack(result)


def _explained(rows: Tensor, templates: Tensor, count: int) -> tuple[float, list[int]]:
    """What is left unexplained of the rows' sums by the best labels found, and these labels."""
    rest, labels = rows, list[int]()
    for _ in range(count):
        labels.append(int((rest - templates).square().sum(1).argmin()))
        rest = rest - templates[labels[-1]]
    for _ in range(2):
        for place in range(count):
            rest_but_one = rest + templates[labels[place]]
            labels[place] = int((rest_but_one - templates).square().sum(1).argmin())
            rest = rest_but_one - templates[labels[place]]
    return float(rest.square().sum()), labels


def last_rows(gradient: Tensor, knowledge: Knowledge) -> Tensor:
    """(classes, k), the gradient of the last layer's weights; an `InputError` where it is not
    linear."""
    model = knowledge.model
    layers = [name for name, part in model.module.named_modules() if isinstance(part, nn.Linear)]
    if layers:
        rows = model.unflatten(gradient)[f"{layers[-1]}.weight"]
        if len(rows) == knowledge.n_classes:
            return rows
    raise InputError("model.name", model.name, "has no linear last layer to read labels off")
