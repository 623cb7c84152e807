"""FedGKT's models: a small one of every client's own, and a server's (He et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.registry import Model, unflattened
from m2fdp.tiers.split_models import build_split_model, scored, trained_tensors

# What a client keeps: what it sends the activations of, and what scores them for itself.
_FIRST = "first."


class ClientNetwork(nn.Module):
    """md1, whose activations are sent, and the small network that scores them at the client."""

    def __init__(self, first: nn.Module, small: nn.Module) -> None:
        super().__init__()
        self.first, self.small = first, small

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """What is sent for images (B, C, H, W), and the client's own scores (B, classes)."""
        sent = self.first(features)
        return sent, self.small(sent)


@dataclass(frozen=True, eq=False)
class Side:
    """A network with all that training changes of it in one vector: parameters, and batch norm's
    running means and variances. Only its structure and initial numbers are used."""

    module: nn.Module

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """The initial ones by name, in the vector's order."""
        return trained_tensors(self.module)

    @cached_property
    def size(self) -> int:
        """The numbers of the vector."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    def initial_vector(self) -> Tensor:
        """float32 (size,)."""
        return torch.cat([tensor.flatten() for tensor in self.tensors.values()])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors by name, as views of a vector (size,)."""
        return unflattened(self.tensors, vector)


@dataclass(frozen=True, eq=False)
class TransferModel(Model):
    """The numbers of the server, md2 to the last module, and then each client's, in one vector.

    As a `Model` it scores every record by some client's md1 and the server.
    """

    client: Side = field(kw_only=True)
    server: Side = field(kw_only=True)
    n_clients: int = field(kw_only=True)

    @property
    def n_parameters(self) -> int:
        """M, the numbers of the vector."""
        return self.server.size + self.n_clients * self.client.size

    @property
    def server_place(self) -> slice:
        """Where the server's numbers are, in the vector."""
        return slice(0, self.server.size)

    def client_place(self, number: int) -> slice:
        """Where those of a client are, in the vector."""
        start = self.server.size + number * self.client.size
        return slice(start, start + self.client.size)

    def initial_vector(self) -> Tensor:
        """w^(1): float32 (M,); all clients start alike."""
        one_client = self.client.initial_vector()
        return torch.cat([self.server.initial_vector(), *[one_client] * self.n_clients])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """All tensors by name, as views of a flat vector (M,)."""
        server = self.server.unflatten(vector[self.server_place])
        named = {f"server.{name}": tensor for name, tensor in server.items()}
        for number in range(self.n_clients):
            tensors = self.client.unflatten(vector[self.client_place(number)])
            named |= {f"clients.{number}.{name}": tensor for name, tensor in tensors.items()}
        return named

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of features (B, C, H, W): of record i by client i mod K and the
        server. What is counted of them estimates the mean over the clients' models, without bias,
        at the price of one."""
        sent: Tensor | None = None
        for number in range(min(self.n_clients, len(features))):
            rows = slice(number, None, self.n_clients)
            tensors = self.client.unflatten(vector[self.client_place(number)])
            first = {n.removeprefix(_FIRST): t for n, t in tensors.items() if n.startswith(_FIRST)}
            images = features[rows].contiguous(memory_format=torch.channels_last)
            module = self.client.module.get_submodule("first")
            part = torch.func.functional_call(module, first, images)
            if sent is None:
                sent = part.new_empty((len(features), *part.shape[1:]))
            sent[rows] = part
        if sent is None:
            raise ValueError("no records to score")
        return scored(self.server.module, self.server.unflatten(vector[self.server_place]), sent)


def build_transfer_model(
    config: ModelConfig, shape: Shape, n_classes: int, seed: int, n_clients: int
) -> TransferModel:
    """The configured model, cut after md1, with small networks of the clients' own."""
    split = build_split_model(config, shape, n_classes, seed, (1,), small=True)
    first, *others = split.modules
    return TransferModel(
        split.name,
        split.module,
        split.loss,
        linear=False,
        client=Side(ClientNetwork(first, split.heads["1"])),
        server=Side(nn.Sequential(*others)),
        n_clients=n_clients,
    )
