"""Opacus: a privacy engine for every device, made once and kept over the rounds."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.contenders import Round
from benchmarks.works import CLIPPING_NORM, Work, build_data, build_work_model, shards


def prepare_hooks(work: Work, threads: int, device: str) -> Round:
    """Per-sample gradients by Opacus' default, hooks on the layers."""
    return _prepare(work, device, "hooks")


def prepare_ghost(work: Work, threads: int, device: str) -> Round:
    """Fast gradient clipping with ghost norms: no per-sample gradient in memory."""
    return _prepare(work, device, "ghost")


def _prepare(work: Work, device: str, mode: str) -> Round:
    from opacus import PrivacyEngine

    warnings.filterwarnings("ignore", module="opacus|torch")
    weights = build_work_model(work).initial_vector().to(device)
    module = build_work_model(work).module.to(device)
    devices = []
    for shard in shards(work, build_data(work, device)):
        own = deepcopy(module)
        parts = PrivacyEngine().make_private(
            module=own,
            optimizer=torch.optim.SGD(own.parameters(), lr=work.learning_rate),
            criterion=nn.CrossEntropyLoss(),
            data_loader=DataLoader(TensorDataset(*shard), batch_size=work.batch),
            noise_multiplier=work.noise_multiplier,
            max_grad_norm=CLIPPING_NORM,
            poisson_sampling=True,
            grad_sample_mode=mode,
        )
        # Only `ghost` returns a criterion of its own.
        private, optimiser, *criterion, loader = parts
        devices.append((private, optimiser, *(criterion or [nn.CrossEntropyLoss()]), loader))

    def round_() -> Tensor:
        nonlocal weights
        trained = [_trained(weights, *device, work.epochs) for device in devices]
        weights = torch.stack(trained).mean(dim=0)
        return weights

    return round_


def _trained(
    weights: Tensor, module: nn.Module, optimiser: Any, criterion: Any, loader: Any, epochs: int
) -> Tensor:
    parameters = list(module.parameters())
    with torch.no_grad():
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, start in zip(parameters, weights.split(sizes), strict=True):
            parameter.copy_(start.view_as(parameter))
    for _ in range(epochs):
        for features, labels in loader:
            optimiser.zero_grad()
            criterion(module(features), labels).backward()
            optimiser.step()
    return parameters_to_vector(parameters).detach()
