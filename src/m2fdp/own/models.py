"""What modules and losses of a user's own must be: tried on a few records before anything else."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from m2fdp.core.errors import InputError
from m2fdp.core.models.checks import KEY, Shape
from m2fdp.core.models.losses import Loss
from m2fdp.core.models.registry import Model
from m2fdp.given.modules import layer_in_words, some_records
from m2fdp.given.own_code import beginning, guarded, load
from m2fdp.own.dropout import KeyedDropout, with_keyed_dropout

_LOSS = "model.loss"
_FEW = 5  # records that own code is tried on
# One record after the other is what a private run is for.
warnings.filterwarnings("ignore", "There is a performance drop because we have not yet")
# All of torch's layers that drop at a rate `p`; functions of that kind show in what they compute.
DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


@dataclass(frozen=True)
class OneByOne:
    """A loss of a user's own, which sees one record at a time (`torch.func.vmap`): neither a
    record's loss nor its gradient depends on another's scores."""

    loss: Loss

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        def alone(score: Tensor, label: Tensor) -> Tensor:
            return self.loss(score[None], label[None])[0]

        return torch.func.vmap(alone)(scores, labels)


def imported(name: str, shape: Shape, n_classes: int) -> Model:
    """The model of a user's own function `name` of the inputs' shape and the number of classes."""
    function = load(KEY, name)
    with guarded(
        KEY, name, f"can't be called with shape (C, H, W) = {shape} and {n_classes} classes"
    ):
        module = function(shape, n_classes)
    draws = isinstance(module, nn.Module) and with_keyed_dropout(module, shape)
    check_module(name, module, shape, n_classes, function)
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            part.register_forward_pre_hook(_from_zeros, with_kwargs=True)
    return Model(name, module, is_own=True, draws=draws)


def _from_zeros(
    layer: nn.RNNBase, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Hand a recurrent layer without a first state the zeros that it starts from. They are made of
    the record: torch.func.vmap can't write into zeros that all records share."""
    if len(given) + len(named) != 1 or not isinstance(x := (*given, *named.values())[0], Tensor):
        return None
    sequences = x.shape[0 if layer.batch_first else 1] if x.dim() == 3 else None
    n_states = layer.num_layers * (2 if layer.bidirectional else 1)

    def zeros(size: int) -> Tensor:
        shape = (n_states, size) if sequences is None else (n_states, sequences, size)
        return x.new_zeros(shape) + torch.zeros_like(x.reshape(-1)[0])

    state: Any = zeros(layer.proj_size or layer.hidden_size)
    if isinstance(layer, nn.LSTM):
        state = (state, zeros(layer.hidden_size))
    return (x, state), {}


def with_own_loss(model: Model, name: str, n_classes: int) -> Model:
    """The model with another loss, whose derivative and curvature nobody has stated."""
    loss = load("model.loss", name)
    check_loss(name, loss, n_classes)
    own = OneByOne(loss)
    return Model(
        model.name, model.module, own, model.linear, is_own=model.is_own, draws=model.draws
    )


def check_module(
    name: str, module: object, shape: Shape, n_classes: int, made_by: Callable[..., Any]
) -> None:
    """Refuse what is no module that can be trained. Whether it mixes records is not tried: in a
    private run each passes it alone.

    Args:
        made_by: the user's function that has made it.

    Raises:
        InputError: it is no module, keeps state, fits not images or classes, or draws its scores.
    """
    if not isinstance(module, nn.Module):
        made = f"{type(module).__name__}{beginning(made_by)}"
        raise InputError(KEY, name, f"must return a torch.nn.Module, not {made}")
    _check_stateless(name, module)
    where = beginning(type(module).forward) or beginning(made_by)
    _check_fits(name, module, shape, n_classes, where)
    _check_repeatable(name, module, shape)


def check_loss(name: str, loss: Loss, n_classes: int) -> None:
    """Refuse what is no loss a record. Whether it mixes records is not tried: it sees each alone.

    Raises:
        InputError: what it makes of some scores is not that.
    """
    labels = torch.arange(_FEW) % n_classes if n_classes > 1 else torch.linspace(-1, 1, _FEW)
    drawn = torch.randn(_FEW, n_classes, generator=torch.Generator().manual_seed(0))
    for scores in (drawn, 5 * drawn, torch.zeros_like(drawn)):
        _try_loss(name, loss, scores, labels)
    what = "can't be vectorised over records by torch.func.vmap, of which it sees each alone"
    with guarded(_LOSS, name, what):
        by_record = torch.func.grad(lambda s, label: OneByOne(loss)(s[None], label[None]).sum())
        torch.func.vmap(by_record)(drawn, labels)


def _try_loss(name: str, loss: Loss, scores: Tensor, labels: Tensor) -> None:
    """Refuse what has no finite losses (B,) of scores (B, C), or no finite gradient."""
    refuse = partial(InputError, _LOSS, name)
    sent, sent_labels = scores.clone().requires_grad_(), labels.clone()
    shapes = f"scores of shape {tuple(scores.shape)} and labels of shape {tuple(labels.shape)}"
    with guarded(_LOSS, name, f"can't take {shapes}"):
        losses = loss(sent, sent_labels)
    if not isinstance(losses, Tensor) or losses.shape != labels.shape:
        output = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise refuse(f"makes {output} of {shapes}; valid: one loss a record, {tuple(labels.shape)}")
    if not torch.equal(sent_labels, labels):
        raise refuse("changes the labels that it is given in place; work on a copy")
    if not losses.isfinite().all():
        raise refuse(f"makes the loss {losses[~losses.isfinite()][0].item()} of {shapes}")
    if not losses.requires_grad:
        raise refuse("makes losses that no gradient leads back from to the scores")
    with guarded(_LOSS, name, "has no gradient"):
        (gradients,) = torch.autograd.grad(losses.sum(), sent)
    if not gradients.isfinite().all():
        raise refuse(f"has a gradient that is not finite, at {shapes}")


def _check_stateless(name: str, module: nn.Module) -> None:
    """Refuse buffers: the engine trains, noises, aggregates and stores parameters alone."""
    for place, part in module.named_modules():
        for buffer, _ in part.named_buffers(recurse=False):
            normed = hasattr(part, "track_running_stats")
            raise InputError(
                KEY,
                name,
                f"has {layer_in_words(place, part)}, whose buffer {buffer} is state that no "
                "aggregation averages and no noise covers; "
                + ("use nn.GroupNorm or nn.LayerNorm" if normed else "make it in forward"),
            )


def _check_fits(name: str, module: nn.Module, shape: Shape, n_classes: int, where: str) -> None:
    """Send some records through the module, as training will."""
    refuse = partial(InputError, KEY, name)
    parameters = dict(module.named_parameters())
    if not parameters:
        raise refuse("has no parameters to train")
    for key, parameter in parameters.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise refuse(f"has the lazy parameter {key}; give its layer the size of its input")
        if not parameter.requires_grad:
            all_are = "but all parameters are trained and noised; compute with a constant instead"
            raise refuse(f"has the frozen parameter {key}, {all_are}")
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            valid = "valid: torch.float32 on cpu (`device` moves the model itself)"
            raise refuse(
                f"has the parameter {key} of {parameter.dtype} on {parameter.device}; {valid}"
            )
        if not parameter.isfinite().all():
            raise refuse(f"starts with the parameter {key} that is not finite; give it numbers")
    records = some_records(shape)
    sent = records.clone()
    given = f"records of shape (C, H, W) = {shape}"
    made = "" if beginning(type(module).forward) else where  # the error has passed no line of it
    with guarded(KEY, name, f"can't take {given}, numbers from 0 to 1{made}"):
        scores = module(sent)
        if any(isinstance(part, KeyedDropout) for part in module.modules()):  # as in training
            module(torch.cat([records.flatten(1), torch.ones(len(records), 2)], dim=1))
    if not isinstance(scores, Tensor) or scores.shape != (len(records), n_classes):
        output = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        valid = f"valid: one score a class, {(len(records), n_classes)}"
        raise refuse(f"makes {output} of {len(records)} {given}; {valid}{where}")
    if not scores.isfinite().all():
        raise refuse("makes scores that are not finite of records in [0, 1], before any training")
    if not torch.equal(sent, records):
        raise refuse("changes the records that it is given in place; work on a copy")
    if not scores.requires_grad:
        raise refuse("makes scores that no gradient leads back from to its parameters")
    gradients = torch.autograd.grad(scores.sum(), list(parameters.values()), allow_unused=True)
    for key, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            raise refuse(f"makes no use of the parameter {key}; remove it")


def _check_repeatable(name: str, module: nn.Module, shape: Shape) -> None:
    """Refuse modules whose scores are drawn, by no stream of the run, or differ in evaluation."""
    refuse = partial(InputError, KEY, name)
    for place, part in module.named_modules():
        rate = part.p if isinstance(part, DROPOUTS) else getattr(part, "dropout", 0.0)
        if isinstance(part, nn.RReLU) or (isinstance(rate, float) and rate > 0):
            raise refuse(
                f"has {layer_in_words(place, part)}, which draws at random in training, by no seed "
                "of the run's, so that none repeats; leave it out or set its rate to 0: clipping "
                "and noise keep a model from learning records by heart, too"
            )
    probe = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for parameter in probe.parameters():  # all may start at zero, which hides any difference
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        records = torch.rand(8, *shape)
        first, second = probe.train()(records), probe(records)
        evaluated = probe.eval()(records)
    if not torch.allclose(first, second, equal_nan=True):
        raise refuse("draws at random: two passes of one record differ")
    if not torch.allclose(first, evaluated, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise refuse("gives other scores in training than in evaluation; use one mode")
