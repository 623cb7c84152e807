"""The loop that most papers' code is: deep copies, data loaders, an average."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.contenders import Round
from benchmarks.works import Work, build_data, build_work_model, shards


def prepare(work: Work, threads: int, device: str) -> Round:
    """Shuffled batches; no clipping, no noise."""
    model = build_work_model(work).module.to(device)
    loaders = [
        DataLoader(TensorDataset(*shard), batch_size=work.batch, shuffle=True)
        for shard in shards(work, build_data(work, device))
    ]

    def round_() -> Tensor:
        total = torch.zeros_like(parameters_to_vector(model.parameters()))
        for loader in loaders:
            total += _trained(deepcopy(model), loader, work)
        weights = (total / len(loaders)).detach()
        vector_to_parameters(weights, model.parameters())
        return weights

    return round_


def _trained(model: nn.Module, loader: DataLoader, work: Work) -> Tensor:
    optimiser = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
    for _ in range(work.epochs):
        for features, labels in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(features), labels).backward()
            optimiser.step()
    return parameters_to_vector(model.parameters()).detach()
