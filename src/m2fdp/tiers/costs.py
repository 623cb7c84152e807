"""What a tier of a split model's modules costs a client and a server."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import nan

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from m2fdp.core.config import ModelConfig
from m2fdp.tiers.split_models import SplitModel, build_split_model

# float32.
BYTES_PER_NUMBER = 4
# D A.5 splits the global model after md2 for SplitFed.
SPLITFED_MODULES = 2
# md1 has no gradient in its input, so that a forward pass is half of its FLOPs; a third of others'.
_FORWARD_OF_FIRST, _FORWARD = 1 / 2, 1 / 3


@dataclass(frozen=True)
class ModuleCosts:
    """By module md1 … md_n, and by head of tiers 1 … n − 1. FLOPs are of a record, forward and
    backward.

    Attributes:
        flops: (n,), with those of the gradient in the input, except for md1, whose input is data.
        parameters: (n,) numbers that are trained.
        buffers: (n,) numbers that batch norm keeps: running means and variances.
        outputs: (n,) numbers of a record that the module gives.
        head_flops: (n − 1,).
        head_parameters: (n − 1,).
        small_flops: FLOPs of the small network that FedGKT's clients have behind md1; NaN where
            that is not counted.
    """

    name: str
    flops: np.ndarray
    parameters: np.ndarray
    buffers: np.ndarray
    outputs: np.ndarray
    head_flops: np.ndarray
    head_parameters: np.ndarray
    small_flops: float = nan


@dataclass(frozen=True)
class TierCosts:
    """By tier 1 … M, where the client does more the higher it is (D Table 11); all (M,).

    Attributes:
        modules: that the client has.
        client_flops: FLOPs of a record, the auxiliary head's included.
        server_flops: FLOPs of a record.
        record_bytes: that a record sends: its activations and its label.
        model_bytes: bytes of the client's model, one way.
    """

    modules: np.ndarray
    client_flops: np.ndarray
    server_flops: np.ndarray
    record_bytes: np.ndarray
    model_bytes: np.ndarray

    @property
    def n_tiers(self) -> int:
        """M, the whole model's tier included."""
        return len(self.modules)


def tier_costs(
    costs: ModuleCosts, n_tiers: int, label_bytes: float, whole_model: bool = False
) -> TierCosts:
    """The last M tiers of all (D Table 11).

    Args:
        label_bytes: bytes of a record's label, sent with its activations.
        whole_model: one tier more, beyond D, in which the client trains everything, sends
            nothing but its model, and needs no head.
    """
    n_cuts = len(costs.head_flops)
    if not 1 <= n_tiers <= n_cuts:
        raise ValueError(f"1 to {n_cuts} tiers, not {n_tiers}")
    cuts = np.arange(n_cuts - n_tiers + 1, n_cuts + 1)
    return costs_of_cuts(costs, cuts, label_bytes, whole_model)


def costs_of_cuts(
    costs: ModuleCosts, cuts: np.ndarray, label_bytes: float, whole_model: bool = False
) -> TierCosts:
    """Of tiers that are cut after these modules (M,); see `tier_costs`."""
    if whole_model:
        cuts = np.append(cuts, len(costs.flops))
    split = cuts < len(costs.flops)
    flops, numbers = np.cumsum(costs.flops), np.cumsum(costs.parameters + costs.buffers)
    head_flops, head_parameters = (
        np.append(each, 0)[cuts - 1] for each in (costs.head_flops, costs.head_parameters)
    )
    return TierCosts(
        cuts,
        flops[cuts - 1] + head_flops,
        flops[-1] - flops[cuts - 1],
        np.where(split, BYTES_PER_NUMBER * costs.outputs[cuts - 1] + label_bytes, 0.0),
        BYTES_PER_NUMBER * (numbers[cuts - 1] + head_parameters),
    )


def fedavg_costs(costs: ModuleCosts) -> TierCosts:
    """One tier: the client trains the whole model."""
    numbers = (costs.parameters + costs.buffers).sum()
    return _one_tier(len(costs.flops), costs.flops.sum(), 0.0, 0.0, BYTES_PER_NUMBER * numbers)


def splitfed_costs(costs: ModuleCosts, label_bytes: float) -> TierCosts:
    """One tier without a head, cut after md2 (D A.5): activations up, their gradients down."""
    client, server = np.split(costs.flops, [SPLITFED_MODULES])
    sent = 2 * BYTES_PER_NUMBER * costs.outputs[SPLITFED_MODULES - 1] + label_bytes
    numbers = (costs.parameters + costs.buffers)[:SPLITFED_MODULES].sum()
    model_bytes = BYTES_PER_NUMBER * numbers
    return _one_tier(SPLITFED_MODULES, client.sum(), server.sum(), sent, model_bytes)


def fedgkt_costs(costs: ModuleCosts, label_bytes: float, epochs: int = 1) -> TierCosts:
    """One tier: md1 and a small network at the client, the rest at the server (He et al. 2020).

    A client trains for some epochs, then passes over its records once more for what it sends:
    activations, labels and scores, and is sent scores. No model travels.
    """
    client = costs.flops[0] + costs.small_flops
    forward = _FORWARD_OF_FIRST * costs.flops[0] + _FORWARD * costs.small_flops
    numbers = costs.outputs[0] + 2 * costs.outputs[-1]
    return _one_tier(
        1,
        epochs * client + forward,
        costs.flops[1:].sum(),
        BYTES_PER_NUMBER * numbers + label_bytes,
        0.0,
    )


def _one_tier(modules: int, *of_tier: float) -> TierCosts:
    return TierCosts(np.array([modules]), *(np.array([value]) for value in of_tier))


# D's images and classes, CIFAR-10's.
CIFAR_SHAPE, CIFAR_CLASSES = (3, 32, 32), 10
# Batch norm asks for two numbers a channel at least, which one record of one pixel would not have.
_COUNTED_RECORDS = 2


def module_costs(model: SplitModel, small: SplitModel | None = None) -> ModuleCosts:
    """Counted on the shapes of a model without numbers and with all its heads, by torch's own
    counter of convolutions' and products' FLOPs; `small` has FedGKT's small network behind md1.
    """
    # Data ask for no gradient; what a module gives to the next does.
    features = torch.empty((_COUNTED_RECORDS, *model.shape), device="meta")
    flops, outputs, head_flops, small_flops = [], [], [], nan
    for number, module in enumerate(model.modules):
        count, features = _step_flops(module, features)
        flops.append(count)
        outputs.append(features[0].numel())
        if number < model.n_tiers:
            head_flops.append(_step_flops(model.heads[str(number + 1)], features)[0])
        if number == 0 and small is not None:
            small_flops = _step_flops(small.heads["1"], features)[0]
    return ModuleCosts(
        model.name,
        np.array(flops),
        np.array([_n_numbers(module.parameters()) for module in model.modules]),
        # Without the count of batches, which nothing reads where a momentum is given.
        np.array(
            [_n_numbers(filter(Tensor.is_floating_point, m.buffers())) for m in model.modules]
        ),
        np.array(outputs),
        np.array(head_flops),
        np.array([_n_numbers(head.parameters()) for head in model.heads.values()]),
        small_flops,
    )


@cache
def resnet_costs(depth: int, width: int) -> ModuleCosts:
    """Of D's scheme at that depth and width, on D's images."""
    config = ModelConfig(name="resnet", depth=depth, width=width)
    images = CIFAR_SHAPE, CIFAR_CLASSES
    small = build_split_model(config, *images, None, (1,), small=True)
    return module_costs(build_split_model(config, *images, None, range(1, 8)), small)


def _step_flops(module: nn.Module, features: Tensor) -> tuple[float, Tensor]:
    """Of a record, forward and backward; and what the module gives, as input of the next."""
    counter = FlopCounterMode(display=False)
    with counter:
        output = module(features)
        output.sum().backward()
    module.zero_grad(set_to_none=True)
    return counter.get_total_flops() / len(features), output.detach().requires_grad_()


def _kept(module: nn.Module) -> list[Tensor]:
    """Without the count of batches, which nothing reads where a momentum is given."""
    return [buffer for buffer in module.buffers() if buffer.is_floating_point()]


def _n_numbers(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
