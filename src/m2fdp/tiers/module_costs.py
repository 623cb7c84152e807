"""What the modules of a split model cost, counted on their shapes."""

from __future__ import annotations

from functools import cache
from math import nan

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from m2fdp.core.config import ModelConfig
from m2fdp.tiers.costs import ModuleCosts
from m2fdp.tiers.split_models import SplitModel, build_split_model

# D's images and classes, CIFAR-10's.
CIFAR_SHAPE, CIFAR_CLASSES = (3, 32, 32), 10
# Batch norm asks for two numbers a channel at least, which one record of one pixel would not have.
_COUNTED_RECORDS = 2


def module_costs(model: SplitModel, small: SplitModel | None = None) -> ModuleCosts:
    """Counted on shapes alone by torch's own counter of convolutions' and products' FLOPs.

    Args:
        model: shapes without numbers (built without a seed), with all its heads.
        small: the same with FedGKT's small network behind md1.
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
        np.array([_n_parameters(module) for module in model.modules]),
        np.array([_n_buffers(module) for module in model.modules]),
        np.array(outputs),
        np.array(head_flops),
        np.array([_n_parameters(head) for head in model.heads.values()]),
        small_flops,
    )


@cache
def resnet_costs(depth: int, width: int) -> ModuleCosts:
    """Of D's scheme at that depth and width, on D's images."""
    config, images = (
        ModelConfig(name="resnet", depth=depth, width=width),
        (CIFAR_SHAPE, CIFAR_CLASSES),
    )
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


def _n_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _n_buffers(module: nn.Module) -> int:
    """Without the count of batches, which nothing reads where a momentum is given."""
    return sum(buffer.numel() for buffer in module.buffers() if buffer.is_floating_point())
