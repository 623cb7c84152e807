"""FedGKT (He et al. 2020): clients and a server teach each other by scores, and share no weights.

A client trains md1 and a small network of its own, which nobody averages, and sends activations,
scores and labels of its records. The server trains md2 to the last module on all of them, and sends
scores back. Each side descends the cross-entropy and, once the other's scores are there, their
divergence from its own at temperature 3.

He et al. keep Adam's moments from round to round, with amsgrad and a weight decay of 1e-4. Here
both sides step by `training`'s optimizer, made anew in every round: no method of a comparison has
an optimizer of its own. The server's batches are of all clients' records together; those of He et
al. are of one client after the other, which forgets the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.chains import channels_last
from m2fdp.core.engine.process import Simulation, Slots, State
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.losses import Loss
from m2fdp.core.models.registry import Model, unflattened
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.tiers.process import (
    EpochProcess,
    FlatModule,
    LocalTraining,
    NetworkTrainer,
    descend,
    rows_of,
)
from m2fdp.tiers.split_models import (
    build_split_model,
    count_numbers,
    flattened,
    scored,
    trained_tensors,
)

TEMPERATURE = 3.0
_SENT_AT_A_TIME = 64
# The server's scores of all training records, as the clients have them.
SCORES = "scores"


def distillation(scores: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T^2 KL(p || q), (B,), with p and q the softmax over T of what is taught and of the scores,
    (B, C) both. With the factor, which is in the code of He et al. and not in their formula, its
    gradient is about as long as the cross-entropy's, whatever T is (Hinton et al. 2015)."""
    ours, teachers = ((values / temperature).log_softmax(1) for values in (scores, taught))
    return temperature**2 * (teachers.exp() * (teachers - ours)).sum(1)


_FIRST = "first."  # of a client's numbers: those of what it sends the activations of


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
class TransferModel(Model):
    """The numbers of the server, md2 to the last module, and then each client's, in one vector:
    parameters, and batch norm's running means and variances. As a `Model` it scores every record by
    some client's md1 and the server."""

    client: ClientNetwork = field(kw_only=True)
    server: nn.Module = field(kw_only=True)
    n_clients: int = field(kw_only=True)

    def initial_vector(self) -> Tensor:
        server, client = (flattened(trained_tensors(each)) for each in (self.server, self.client))
        return torch.cat([server, *[client] * self.n_clients])

    @property
    def n_parameters(self) -> int:
        return self.client_place(self.n_clients).start

    @property
    def server_place(self) -> slice:
        return slice(0, count_numbers(self.server))

    def client_place(self, number: int) -> slice:
        size = count_numbers(self.client)
        start = self.server_place.stop + number * size
        return slice(start, start + size)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        networks = {"server": self.server}
        networks |= {f"clients.{number}": self.client for number in range(self.n_clients)}
        tensors = {
            f"{prefix}.{name}": tensor
            for prefix, network in networks.items()
            for name, tensor in trained_tensors(network).items()
        }
        return unflattened(tensors, vector)

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of features (B, C, H, W): of record i by client i mod K and the
        server. What is counted of them estimates the mean over the clients' models, without bias,
        at the price of one."""
        parts = []
        for number in range(min(self.n_clients, len(features))):
            tensors = unflattened(trained_tensors(self.client), vector[self.client_place(number)])
            first = {n.removeprefix(_FIRST): t for n, t in tensors.items() if n.startswith(_FIRST)}
            images = features[number :: self.n_clients]
            images = images.contiguous(memory_format=torch.channels_last)
            parts.append(torch.func.functional_call(self.client.first, first, images))
        sent = parts[0].new_empty((len(features), *parts[0].shape[1:]))
        for number, part in enumerate(parts):
            sent[number :: self.n_clients] = part
        server = unflattened(trained_tensors(self.server), vector[self.server_place])
        return scored(self.server, server, sent)


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
        client=ClientNetwork(first, split.heads["1"]),
        server=nn.Sequential(*others),
        n_clients=n_clients,
    )


class SideTrainer(NetworkTrainer):
    """Trains one side's network."""

    def __init__(
        self, module: nn.Module, loss: Loss, settings: LocalTraining, features: Tensor
    ) -> None:
        super().__init__(module, loss, settings, features)
        self._flat = FlatModule(self.module)

    def descend(
        self, optimizer: Optimizer, scores: Tensor, labels: Tensor, taught: Tensor | None
    ) -> None:
        """A step by this side's scores (B, classes) and the other side's, if there are any; means
        over records."""
        value = self.loss(scores, labels).mean()
        if taught is not None:
            value = value + distillation(scores, taught, TEMPERATURE).mean()
        descend(optimizer, value)

    def train_client(
        self,
        numbers: Tensor,
        records: tuple[Tensor, Tensor, Tensor | None],
        step_size: float,
        order: np.random.Generator,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A client's numbers (size,) after its epochs, and what it then sends: activations (n, …)
        and scores (n, classes) of its records, batch norm by its running means and variances.

        Args:
            records: features (n, C, H, W), labels (n,), and the server's scores (n, classes), or
                None where it has been sent none.
        """
        self.load(numbers)
        features, labels, taught = records
        optimizer = self.optimizer([self._flat], step_size)
        self.module.train()
        for batch in self.batches(labels, order):
            _, scores = self.module(channels_last(features.index_select(0, batch)))
            others = None if taught is None else taught.index_select(0, batch)
            self.descend(optimizer, scores, labels.index_select(0, batch), others)
        self.module.eval()
        with torch.no_grad():
            parts = [self.module(channels_last(part)) for part in features.split(_SENT_AT_A_TIME)]
            sent, scores = (torch.cat(values) for values in zip(*parts, strict=True))
            return self.vector(), sent, scores

    def train_server(
        self,
        numbers: Tensor,
        received: tuple[Tensor, Tensor, Tensor],
        step_size: float,
        order: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """The server's numbers (size,) after a pass over all that clients have sent: activations
        (n, …), labels (n,), scores (n, classes). Second: the scores that it sends back. It has
        stepped by them, so they cost no pass more."""
        self.load(numbers)
        activations, labels, taught = received
        optimizer = self.optimizer([self._flat], step_size)
        answers = torch.zeros_like(taught)
        shuffled = torch.as_tensor(order.permutation(len(labels)), device=labels.device)
        for batch in whole_batches(shuffled, self.settings.batch_size):
            scores = self.module(channels_last(activations.index_select(0, batch)))
            answers[batch] = scores.detach()
            others = taught.index_select(0, batch)
            self.descend(optimizer, scores, labels.index_select(0, batch), others)
        return self.vector(), answers


def whole_batches(order: Tensor, size: int) -> list[Tensor]:
    """An order (n,) in batches; a single record that is left over joins the last, as batch norm may
    need two."""
    batches = list(order.split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


class TransferProcess(EpochProcess):
    """Clients and server teach each other. A state's weights are the server's numbers and every
    client's; its slot `scores` has what the server has sent of each record."""

    def __init__(
        self, simulation: Simulation, cuts: np.ndarray, settings: LocalTraining, workers: int
    ) -> None:
        super().__init__(simulation, cuts, workers)
        model, features = simulation.model, self.features
        assert isinstance(model, TransferModel)
        self.model = model
        self.client = SideTrainer(model.client, model.loss, settings, features)
        self.server = SideTrainer(model.server, model.loss, settings, features)
        with torch.no_grad():
            sent, scores = self.client.module.eval()(features[:1])
        n_sent = int((self.present * self.sizes).sum(axis=1).max())
        # Of the clients of a round: their numbers (n, size), and of their records activations
        # (r, …) and scores (r, classes).
        n_clients = int(self.present.sum(axis=1).max())
        self.numbers = self.room(n_clients, torch.Size([count_numbers(model.client)]))
        self.sent, self.scores = (self.room(n_sent, each.shape[1:]) for each in (sent, scores))

    def start(self) -> State:
        scores = self.features.new_zeros(len(self.features), self.scores.shape[1])
        return State(0, self.model.initial_vector().to(self.features), Slots({SCORES: scores}))

    def round(self, state: State, plan: RoundPlan, tap: object = None) -> State:
        """Everybody who takes part trains and sends, then the server trains and answers.

        Who does not keeps its numbers, and the scores that it was sent. A tap hears nothing: no
        model travels.
        """
        number, labels = state.round + 1, self.simulation.shards.labels
        clients = np.flatnonzero(self.present[state.round])
        self.share(clients, partial(self._train, clients, state, plan.step_size))
        held = [torch.arange(self.rows[client].start, self.rows[client].stop) for client in clients]
        rows = torch.cat(held).to(labels.device)
        received = self.sent[: len(rows)], labels.index_select(0, rows), self.scores[: len(rows)]
        weights, scores = state.weights.clone(), state.slots.server[SCORES].clone()
        order = self.simulation.randomness.sampling.generator("server-batches", number)
        server = self.model.server_place
        weights[server], scores[rows] = self.server.train_server(
            weights[server], received, plan.step_size, order
        )
        for client, numbers in zip(clients.tolist(), self.numbers, strict=False):
            weights[self.model.client_place(client)] = numbers
        return State(number, weights, Slots({SCORES: scores}))

    def _train(self, clients: np.ndarray, state: State, step_size: float, part: range) -> None:
        """Leave the numbers of some clients int64 (n,), and what they send, for the server."""
        of_sent, sampling = rows_of(self.sizes[clients]), self.simulation.randomness.sampling
        # The server has answered whoever has taken part before.
        answered = self.present[: state.round].sum(axis=0) > 0
        for place in part:
            client, sent = int(clients[place]), of_sent[place]
            scores = state.slots.server[SCORES][self.rows[client]] if answered[client] else None
            self.numbers[place], self.sent[sent], self.scores[sent] = self.client.train_client(
                state.weights[self.model.client_place(client)],
                (*self.records(client), scores),
                step_size,
                sampling.generator("tier-batches", state.round + 1, client),
            )
