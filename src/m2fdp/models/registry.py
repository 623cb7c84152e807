"""Models by name: svm, softmax, logistic, cnn12, or the user's `package.module:function`."""

from __future__ import annotations

import copy
import importlib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils import parameters_to_vector

from m2fdp.config import ModelConfig
from m2fdp.errors import InputError
from m2fdp.models import losses
from m2fdp.streams import torch_seed

Loss = Callable[[Tensor, Tensor], Tensor]
Shape = tuple[int, int, int]

# The widths that give M = 7840 parameters at ten classes (J Sec. VI-A), by image channels.
_CNN12_CHANNELS = {1: (16, 18, 20), 3: (5, 17, 22)}


@dataclass(frozen=True, eq=False)
class Model:
    """A module with its loss.

    Attributes:
        name: as configured.
        module: maps features (B, C, H, W) to scores (B, classes). Only its structure and
            initial parameters are used; the simulation keeps parameters as flat vectors.
        loss: scores (B, C) and labels (B,) to a loss per record (B,).
        linear: whether scores are one matrix product with the flattened features, no bias.
    """

    name: str
    module: nn.Module
    loss: Loss
    linear: bool
    # The loss's derivative in the scores, where it is known in closed form.
    loss_gradient: Loss | None = None
    # For linear models whose loss is a sum over the classes of convex functions of the class's
    # score: a bound on their second derivatives. None for all others.
    class_curvature: float | None = None

    @property
    def n_parameters(self) -> int:
        """M."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    def initial_vector(self) -> Tensor:
        """w^(1): float32 (M,)."""
        return parameters_to_vector(self.module.parameters()).detach().clone()

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of a flat vector (M,)."""
        result, start = {}, 0
        for name, parameter in self.module.named_parameters():
            end = start + parameter.numel()
            result[name] = vector[start:end].view(parameter.shape)
            start = end
        return result

    def score_gradients(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The derivative of each record's loss in its scores (..., C, b), for labels (..., b)."""
        if self.loss_gradient is not None:
            return self.loss_gradient(scores, labels)
        by_record = scores.mT.detach().requires_grad_()
        losses = self.loss(by_record.flatten(0, -2), labels.flatten())
        return torch.autograd.grad(losses.sum(), by_record)[0].mT

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of features (B, C, H, W) under the parameters (M,)."""
        return torch.func.functional_call(self.module, self.unflatten(vector), (features,))


def build_model(config: ModelConfig, shape: Shape, n_classes: int, seed: int) -> Model:
    """The configured model for images of (C, H, W) and n_classes labels.

    Linear models start at zero; others at torch's own initialisation, drawn with the seed.

    Raises:
        InputError: an unknown name, images too small for `cnn12`, a key that the model does
            not have, an own function that raises or returns no module, or a module that does not
            fit the images and classes, that per-sample clipping can't train, or whose scores are
            random.
    """
    if config.channels is not None and config.name != "cnn12":
        raise InputError("model.channels", config.channels, "belongs to model.name: cnn12 only")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initialisation"))
        if config.name in {"svm", "softmax", "logistic"}:
            return _linear(config, shape, n_classes)
        if config.name == "cnn12":
            return Model("cnn12", _cnn12(config, shape, n_classes), losses.cross_entropy, False)
        module = _imported(config.name, shape, n_classes)
    _check_trainable(config.name, module)
    _check_fits(config.name, module, shape, n_classes)
    _check_repeatable(config.name, module, shape)
    return Model(config.name, module, losses.cross_entropy, linear=False)


def check_model_name(name: str) -> None:
    """Raises InputError unless the name is known or names an importable function."""
    if name not in {"svm", "softmax", "logistic", "cnn12"}:
        _import_function(name)


def _linear(config: ModelConfig, shape: Shape, n_classes: int) -> Model:
    layer = nn.Linear(prod(shape), n_classes, bias=False)
    nn.init.zeros_(layer.weight)
    module = nn.Sequential(nn.Flatten(), layer)
    if config.name == "logistic":
        # The logistic function's slope is at most a quarter.
        return Model(
            config.name,
            module,
            losses.one_vs_rest_logistic,
            linear=True,
            loss_gradient=losses.one_vs_rest_logistic_gradient,
            class_curvature=0.25,
        )
    if config.name == "softmax":
        loss, gradient = losses.cross_entropy, losses.cross_entropy_gradient
    elif config.hinge == "one_vs_rest":
        loss, gradient = losses.one_vs_rest_hinge, losses.one_vs_rest_hinge_gradient
    else:
        loss, gradient = losses.crammer_singer_hinge, None
    return Model(config.name, module, loss, linear=True, loss_gradient=gradient)


def _cnn12(config: ModelConfig, shape: Shape, n_classes: int) -> nn.Module:
    """Three times conv-relu-pool, flatten, linear (and the softmax inside the loss)."""
    inputs, height, width = shape
    if min(height, width) < 8:
        raise InputError(
            "model.name",
            "cnn12",
            f"pools three times, so images need at least "
            f"8 x 8 pixels; these have {height} x {width}",
        )
    widths = config.channels or _CNN12_CHANNELS.get(inputs, _CNN12_CHANNELS[3])
    layers: list[nn.Module] = []
    for before, after in zip([inputs, *widths], widths):  # noqa: B905 (one longer by design)
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    features = widths[-1] * (height // 8) * (width // 8)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, n_classes))


def _import_function(name: str) -> Callable[[Shape, int], nn.Module]:
    key = "model.name"
    module_name, _, function_name = name.partition(":")
    if not function_name:
        raise InputError(
            key, name, "is none of svm, softmax, logistic, cnn12, and no package.module:function"
        )
    with _own_code(name, "can't be imported"):
        function = getattr(importlib.import_module(module_name), function_name)
    if not callable(function):
        raise InputError(key, name, f"is no function but {type(function).__name__}")
    return function


def _imported(name: str, shape: Shape, n_classes: int) -> nn.Module:
    function = _import_function(name)
    with _own_code(name, f"can't be called with ({shape}, {n_classes})"):
        module = function(shape, n_classes)
    if not isinstance(module, nn.Module):
        raise InputError(
            "model.name", name, f"must return a torch.nn.Module, not {type(module).__name__}"
        )
    return module


@contextmanager
def _own_code(name: str, what: str) -> Iterator[None]:
    """Whatever the user's code raises, sys.exit too, is one line with its own last place."""
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)[1:]
            if "site-packages" not in frame.filename and not frame.filename.startswith("<frozen")
        ]
        own = [frame for frame in frames if frame.filename not in (__file__, importlib.__file__)]
        place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError("model.name", name, f"{what}: {reason}{place}") from error


def _check_trainable(name: str, module: nn.Module) -> None:
    from opacus.validators import ModuleValidator  # seconds to import, needed only here

    errors = ModuleValidator.validate(module, strict=False)
    if errors:
        reason = str(errors[0]).split("\n")[0]
        raise InputError(
            "model.name",
            name,
            f"can't be trained with differential privacy: "
            f"{reason} (batch norm mixes the records of a batch; group or layer "
            f"norm does not)",
        )
    buffers = [buffer for buffer, _ in module.named_buffers()]
    if buffers:
        raise InputError(
            "model.name",
            name,
            f"has the buffer {buffers[0]}, state that no "
            "aggregation averages and no noise covers; remove it",
        )


def _check_fits(name: str, module: nn.Module, shape: Shape, n_classes: int) -> None:
    """Send some records through the module, as training will."""

    def refuse(problem: str) -> InputError:
        return InputError("model.name", name, problem)

    parameters = dict(module.named_parameters())
    if not parameters:
        raise refuse("has no parameters to train")
    for key, parameter in parameters.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise refuse(f"has the lazy parameter {key}; give its layer the size of its input")
        if not parameter.requires_grad:
            raise refuse(
                f"has the frozen parameter {key}, but all parameters are trained and noised; "
                "compute with a constant instead"
            )
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise refuse(
                f"has the parameter {key} of {parameter.dtype} on {parameter.device}; "
                "valid: torch.float32 on cpu (`device` moves the model itself)"
            )
    generator = torch.Generator().manual_seed(0)
    records = torch.rand(3, *shape, generator=generator)
    sent = records.clone()
    training = module.training
    module.eval()
    with _own_code(name, f"can't take records of shape {shape}"):
        scores = module(sent)
    if not isinstance(scores, Tensor) or scores.shape != (len(records), n_classes):
        given = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise refuse(
            f"makes {given} of {len(records)} records; valid: one score a class, "
            f"{(len(records), n_classes)}"
        )
    if not torch.equal(sent, records):
        raise refuse("changes the records that it is given in place; work on a copy")
    if not scores.requires_grad:
        raise refuse("makes scores that no gradient leads back from to its parameters")
    gradients = torch.autograd.grad(scores.sum(), list(parameters.values()), allow_unused=True)
    for key, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            raise refuse(f"makes no use of the parameter {key}; remove it")
    alone = torch.cat([module(record[None]) for record in records])
    module.train(training)
    if not torch.allclose(scores, alone, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise refuse(
            "makes other scores of a record when other records are beside it; per-record "
            "clipping, and so privacy, needs each record's to be its own"
        )


def _check_repeatable(name: str, module: nn.Module, shape: Shape) -> None:
    """Refuse modules whose scores are drawn, or others in training than in evaluation.

    torch's own draws are no stream of the run's: no run would repeat, nor end as it was trained.
    """
    for place, part in module.named_modules():
        if isinstance(part, nn.RReLU) or (isinstance(part, _DropoutNd) and part.p > 0):
            where = f" (layer {place})" if place else ""
            raise InputError(
                "model.name",
                name,
                f"has {type(part).__name__}{where}, which draws at random in training, so that no "
                "run repeats; leave it out or set its rate to 0",
            )
    probe = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for parameter in probe.parameters():  # all may start at zero, which hides any difference
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        records = torch.rand(8, *shape)
        once, again = probe.train()(records), probe(records)
        evaluated = probe.eval()(records)
    if not torch.allclose(once, again, equal_nan=True):
        raise InputError("model.name", name, "draws at random: two passes of one record differ")
    if not torch.allclose(once, evaluated, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise InputError(
            "model.name", name, "gives other scores in training than in evaluation; use one mode"
        )
