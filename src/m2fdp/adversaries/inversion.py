"""From a message, as an observer reads it, back to images. The attacker has some knowledge, can
compute the message of any images, and searches images in [0, 1] that would make the one it read.

The attacker knows the model and the start, how gradients are clipped, and how many records each
device has, and nothing of the state. Of several local steps it takes all for one from the start, so
that what it finds of them is less than what is there. It searches by one of these methods:

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
from dataclasses import dataclass
from math import inf, isfinite, prod

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.adversaries.config import AttackConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import Model

# Random images that tell what a record adds to the last layer, and how much brighter than they
# records may be.
_IMAGES = 4
_BRIGHTNESSES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)
# Evaluations of L-BFGS between two times that images are put back into [0, 1].
_AT_A_TIME = 20
_ADAM_PART, _ADAM_STEP = 1 / 3, 0.1
# Brightnesses that are tried before the best of them is refined, and how often that is done.
_TRIED, _REFINEMENTS = 400, 60


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


@dataclass(frozen=True, eq=False)
class Knowledge:
    """An attacker knows these beside the message: the model, images' shape (C, H, W), and the
    devices' numbers of records D_j, int64 (N_L,). It also knows the norms that each record's and
    each device's gradient is clipped to; None = it is not."""

    model: Model
    shape: tuple[int, int, int]
    n_classes: int
    sizes: np.ndarray
    record_norm: float | None = None
    device_norm: float | None = None


@dataclass(frozen=True, eq=False)
class Sought:
    """The images that are sought. `owners` int64 (n,): the place of each one's device in the
    message. `weights` float64 (devices, n): each image's weight in its owner's gradient. `parts`
    float64 (devices,): each owner's weight in the message."""

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
    parts = (message.shares / message.shares.sum())[owners]
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

    def clipped(vectors: Tensor, norm: float | None) -> Tensor:
        if norm is None:
            return vectors
        norms = vectors.norm(dim=1, keepdim=True).clamp_min(1e-30)
        return vectors * (norm / norms).clamp_max(1.0)

    by_record = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(start, images, losses_of)
    by_record = clipped(by_record, knowledge.record_norm)
    return sought.parts @ clipped(sought.weights @ by_record, knowledge.device_norm)


def labels_by_rule(message: Message, knowledge: Knowledge, count: int) -> list[int]:
    """So many labels, read off the last layer.

    One record: the row of the last layer's gradient with the least sum is its label's (Zhao et al.
    2020). The layer's inputs are not negative: sigmoids, ReLUs or pixels made them. Several: random
    images tell what a record of each label adds to the rows' sums (Wainakh et al. 2022). Labels are
    found one by one, then exchanged one at a time, at several brightnesses. The one that explains
    most counts.
    """
    rows = last_rows(message.gradient, knowledge).sum(1).double()
    if count == 1:
        return [int(rows.argmin())]
    templates = _templates(message, knowledge)
    return min(_explained(count * rows, times * templates, count) for times in _BRIGHTNESSES)[1]


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
    images = torch.from_numpy(stream.random((count, *knowledge.shape))).requires_grad_()
    logits = torch.from_numpy(stream.standard_normal((count, classes)))
    reads_labels = config.method != "dlg"
    labels = torch.tensor(labels_by_rule(message, knowledge, count)) if reads_labels else None
    by_angle = config.method == "inverting"
    variables = [images] if labels is not None else [images, logits.requires_grad_()]

    def misfit() -> Tensor:
        one_hot = torch.eye(classes, dtype=target.dtype)
        chosen = logits.softmax(1) if labels is None else one_hot[labels]
        trial = message_of(images, chosen, knowledge, sought, start)
        if not by_angle:
            return (trial - target).square().sum()
        cosine = trial @ target / (trial.norm() * target.norm()).clamp_min(1e-30)
        # Mean differences between neighbouring pixels, down and across.
        down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
        across = (images[..., 1:] - images[..., :-1]).abs().mean()
        return 1 - cosine + config.total_variation * (down + across)

    begun = int(config.iterations * _ADAM_PART) if by_angle else 0
    if begun:
        _signed_adam(images, misfit, begun)
    _l_bfgs(variables, images, misfit, config.iterations - begun)
    with torch.no_grad():
        images.nan_to_num_(0.5).clamp_(0.0, 1.0)
    ended = float(misfit().detach())
    best_labels = logits.detach().argmax(1) if labels is None else labels
    return {
        "images": images.detach().float().numpy(),
        "labels": best_labels.numpy(),
        "misfit": np.array(ended if isfinite(ended) else inf),
    }


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
    weights, bias = named[f"{name}.weight"], named.get(f"{name}.bias")
    if bias is None:
        pixels = _without_bias(message, knowledge, weights, label)
    else:
        pixels = bias @ weights / bias.square().sum().clamp_min(1e-300)
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

    def excess(brightness: Tensor) -> Tensor:
        scores = scores_at_one[:, None] * brightness
        errors = model.score_gradients(scores, torch.tensor([label]).expand(len(brightness)))
        return brightness * errors.norm(dim=0) - size

    brightest = prod(knowledge.shape) ** 0.5
    tried = torch.linspace(0.0, brightest, _TRIED + 1, dtype=torch.float64)
    values = excess(tried[1:])
    too_bright = torch.nonzero(values >= 0)
    if not len(too_bright):
        return direction * tried[1 + values.abs().argmin()]
    first = int(too_bright[0])
    low, high = tried[first], tried[first + 1]
    for _ in range(_REFINEMENTS):
        middle = (low + high) / 2
        if float(excess(middle[None])) >= 0:
            high = middle
        else:
            low = middle
    return direction * high
