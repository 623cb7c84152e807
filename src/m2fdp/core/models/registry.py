"""Models by name, those of rooms too, or one's own `package.module:function`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from m2fdp.core.config import ModelConfig
from m2fdp.core.models import losses
from m2fdp.core.models.checks import KEY, LOSSES, MODELS, Shape, check_model_name
from m2fdp.core.models.losses import Loss
from m2fdp.core.own_code import OWN, is_own
from m2fdp.core.streams import torch_seed

_LEAST_SHARE = 1e-12  # of a class that no record is of, for its logarithm


@dataclass(frozen=True, eq=False)
class Model:
    """A module with its loss.

    Attributes:
        name: the configured one.
        module: maps features (B, C, H, W) to scores (B, classes). Only its structure and
            initial parameters are used; the simulation keeps parameters as flat vectors.
        loss: scores (B, C) and labels (B,) to a loss per record (B,).
        linear: whether scores are one matrix product with the flattened features, no bias.
    """

    name: str
    module: nn.Module
    loss: Loss = losses.cross_entropy
    linear: bool = False
    # The loss's derivative in the scores, where it is known in closed form.
    loss_gradient: Loss | None = None
    # For linear models, of the loss's second derivative in the scores: a bound on its eigenvalues,
    # and on their sum.
    curvature: float | None = None
    curvature_sum: float | None = None
    # Whether the module is a user's own, through which records to be clipped pass one at a time.
    is_own: bool = False
    # Whether it draws of records that come with a key (`Minibatches.records`), and of no others.
    draws: bool = False

    @property
    def n_parameters(self) -> int:
        """M."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def layers(self) -> tuple[slice, ...]:
        """The places in a flat vector of what one module holds itself, weight and bias together."""
        counted: set[int] = set()
        result, start = [], 0
        for module in self.module.modules():
            own = {id(p): p.numel() for p in module.parameters(recurse=False)}
            if new := own.keys() - counted:
                end = start + sum(own[key] for key in new)
                result.append(slice(start, end))
                counted, start = counted | new, end
        return tuple(result)

    def initial_vector(self) -> Tensor:
        """w^(1): float32 (M,)."""
        return parameters_to_vector(self.module.parameters()).detach().clone()

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of a flat vector (M,)."""
        return unflattened(dict(self.module.named_parameters()), vector)

    def loss_of_equal_scores(self, n_classes: int) -> float:
        """The mean loss over all labels where all scores are zero; of numbers, over both ends of
        their range, which is the most."""
        labels = torch.arange(n_classes) if n_classes > 1 else torch.tensor([-1.0, 1.0])
        return float(self.loss(torch.zeros(len(labels), n_classes), labels).mean())

    def loss_of_shares(self, shares: np.ndarray) -> float:
        """The mean loss where every record's scores are the logarithms of the classes' shares,
        float64 (C,); for cross-entropy their entropy. Of numbers, where they are zero."""
        if len(shares) == 1:
            return self.loss_of_equal_scores(len(shares))
        (labels,) = torch.from_numpy(shares).nonzero(as_tuple=True)
        scores = torch.from_numpy(shares).clamp(min=_LEAST_SHARE).log().float()
        losses = self.loss(scores.expand(len(labels), -1).contiguous(), labels)
        return float(losses.double() @ torch.from_numpy(shares)[labels])

    def score_gradients(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each record's loss in its scores (..., C, b), for labels (..., b)."""
        by_hand = losses.cross_entropy_gradient if self.loss is losses.cross_entropy else None
        if (gradient := self.loss_gradient or by_hand) is not None:
            return gradient(scores, labels)
        by_record = scores.mT.detach().requires_grad_()
        of_records = self.loss(by_record.flatten(0, -2), labels.flatten())
        return torch.autograd.grad(of_records.sum(), by_record)[0].mT

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of features (B, C, H, W) under the parameters (M,)."""
        return torch.func.functional_call(self.module, self.unflatten(vector), (features,))

    def answers(self, vector: Tensor, features: Tensor) -> Tensor:
        """What records that are not trained on are judged by: their scores, as the loss takes."""
        return self.scores(vector, features)


def unflattened(tensors: Mapping[str, Tensor], vector: Tensor) -> dict[str, Tensor]:
    """Tensors of the same names and shapes, as views of a vector that holds them in order."""
    result, start = {}, 0
    for name, tensor in tensors.items():
        end = start + tensor.numel()
        result[name] = vector[start:end].view(tensor.shape)
        start = end
    return result


def build_model(config: ModelConfig, shape: Shape, n_classes: int, seed: int) -> Model:
    """The configured model for images of (C, H, W) and n_classes labels.

    Linear models start at zero; others at torch's own initialisation, drawn with the seed.

    Raises:
        InputError: an unknown name, too small images, a key that the model lacks, refused own code.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initialisation"))
        model = _named(config, shape, n_classes)
    if config.loss is None:
        return model
    if config.loss in LOSSES:
        return LOSSES[config.loss](model)
    return OWN["model.loss"](model, config.loss, n_classes)


def _named(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    check_model_name(config.name)
    if is_own(config.name):
        return OWN[KEY](config.name, shape, n_classes)
    return MODELS[config.name](config, shape, n_classes)


def linear(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    """One linear layer without a bias, zero at first: softmax, logistic or svm by its loss."""
    layer = nn.Linear(prod(shape), n_classes, bias=False)
    nn.init.zeros_(layer.weight)
    module = nn.Sequential(nn.Flatten(), layer)
    model = Model(config.name, module, linear=True)
    if config.name == "logistic":
        # The logistic function's slope is at most a quarter.
        return replace(
            model,
            loss=losses.one_vs_rest_logistic,
            loss_gradient=losses.one_vs_rest_logistic_gradient,
            curvature=0.25,
            curvature_sum=0.25 * n_classes,
        )
    if config.name == "softmax":
        # diag(p) - p p': a row's absolute values add up to 2 p (1 - p), its trace is 1 - sum p^2.
        return replace(model, curvature=0.5, curvature_sum=1 - 1 / n_classes)
    if config.hinge == "crammer_singer":
        return replace(model, loss=losses.crammer_singer_hinge)
    loss, gradient = losses.one_vs_rest_hinge, losses.one_vs_rest_hinge_gradient
    return replace(model, loss=loss, loss_gradient=gradient)
