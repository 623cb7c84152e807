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

import copy
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.process import Simulation, Slots, State, Tap, shared_tensor
from m2fdp.core.engine.sequential import channels_last
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.losses import distillation
from m2fdp.core.models.registry import Model, unflattened
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.processes.workers import Workers
from m2fdp.tiers.local import FlatModule, LocalTraining, NetworkTrainer, Stepper, rows_of
from m2fdp.tiers.split_models import build_split_model, scored, trained_tensors

TEMPERATURE = 3.0
_SENT_AT_A_TIME = 64
# The server's scores of all training records, as the clients have them.
SCORES = "scores"


class SideTrainer(NetworkTrainer):
    """Trains one side's network on a copy of it, of the type and on the device of features."""

    def __init__(
        self, model: TransferModel, side: Side, settings: LocalTraining, features: Tensor
    ) -> None:
        self.module, self.loss = copy.deepcopy(side.module).to(features).train(), model.loss
        self._flat = FlatModule(self.module)
        super().__init__(self.module, side.unflatten, settings)

    def objective(self, scores: Tensor, labels: Tensor, taught: Tensor | None) -> Tensor:
        """The mean over records of what a step descends, by this side's scores (B, classes) and by
        the other side's, if there are any."""
        value = self.loss(scores, labels).mean()
        if taught is None:
            return value
        return value + distillation(scores, taught, TEMPERATURE).mean()


class ClientTrainer(SideTrainer):
    """Trains clients one after the other."""

    def update(
        self,
        numbers: Tensor,
        records: tuple[Tensor, Tensor, Tensor | None],
        step_size: float,
        order: np.random.Generator,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A client's numbers (size,) after its epochs, and what it then sends: activations (n, …)
        and scores (n, classes) of its records, batch norm by its running means and variances.

        Args:
            records: its features (n, C, H, W), labels (n,), and the server's scores (n, classes)
                if it has been sent any.
        """
        self.load(numbers)
        features, labels, taught = records
        stepper = Stepper([self._flat], self.settings, step_size)
        self.module.train()
        for batch in self.batches(labels, order):
            _, scores = self.module(channels_last(features.index_select(0, batch)))
            others = None if taught is None else taught.index_select(0, batch)
            stepper.step(self.objective(scores, labels.index_select(0, batch), others))
        self.module.eval()
        with torch.no_grad():
            parts = [self.module(channels_last(part)) for part in features.split(_SENT_AT_A_TIME)]
            sent, scores = (torch.cat(values) for values in zip(*parts, strict=True))
            return self.vector(), sent, scores


class ServerTrainer(SideTrainer):
    """Trains the server's network on what clients have sent."""

    def update(
        self,
        numbers: Tensor,
        received: tuple[Tensor, Tensor, Tensor],
        step_size: float,
        order: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """The server's numbers (size,) after a pass over all, and the scores (n, classes) that it
        sends back: those by which it has stepped, which cost no pass more.

        Args:
            received: activations (n, …), labels (n,) and scores (n, classes) of all clients.
        """
        self.load(numbers)
        activations, labels, taught = received
        stepper = Stepper([self._flat], self.settings, step_size)
        answers = torch.zeros_like(taught)
        shuffled = torch.as_tensor(order.permutation(len(labels)), device=labels.device)
        for batch in whole_batches(shuffled, self.settings.batch_size):
            scores = self.module(channels_last(activations.index_select(0, batch)))
            answers[batch] = scores.detach()
            others = taught.index_select(0, batch)
            stepper.step(self.objective(scores, labels.index_select(0, batch), others))
        return self.vector(), answers


def whole_batches(order: Tensor, size: int) -> list[Tensor]:
    """An order (n,) in batches; a single record that is left over joins the last, as batch norm may
    need two."""
    batches = list(order.split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


@dataclass(eq=False)
class TransferExecutor:
    """The means to run the rounds; they are written to.

    Attributes:
        numbers: (n, size), of the clients of a round.
        sent: (r, …), activations of their records.
        scores: (r, classes), theirs.
    """

    workers: Workers
    client: ClientTrainer
    server: ServerTrainer
    numbers: Tensor
    sent: Tensor
    scores: Tensor


@dataclass(frozen=True, eq=False)
class TransferProcess:
    """The rounds of a simulation whose clients and server teach each other (a `Process`).

    A state's weights are the server's numbers and every client's; its slot `scores` has what the
    server has sent of each record.

    Attributes:
        simulation: its network is a star.
        model: the simulation's.
        present: bool (R, K), who takes part.
    """

    simulation: Simulation
    model: TransferModel
    present: np.ndarray
    executor: TransferExecutor
    draws: frozenset[str] = frozenset()

    def start(self) -> State:
        features = self.simulation.shards.features
        scores = features.new_zeros(len(features), self.executor.scores.shape[1])
        return State(0, self.model.initial_vector().to(features), Slots({SCORES: scores}))

    def round(self, state: State, plan: RoundPlan, tap: Tap | None = None) -> State:
        """Everybody who takes part trains and sends, then the server trains and answers.

        Who does not keeps its numbers, and the scores that it was sent. A tap hears nothing: no
        model travels.
        """
        shards, executor, model = self.simulation.shards, self.executor, self.model
        number, every = state.round + 1, rows_of(shards.sizes)
        clients = np.flatnonzero(self.present[state.round])
        work = partial(_train, self, clients, state, plan.step_size)
        costs = shards.sizes[clients].astype(np.float64)
        executor.workers.share("clients", costs, work, fixed=(self,))
        held = [torch.arange(every[client].start, every[client].stop) for client in clients]
        rows = torch.cat(held).to(shards.labels.device)
        received = (
            executor.sent[: len(rows)],
            shards.labels.index_select(0, rows),
            executor.scores[: len(rows)],
        )
        weights, scores = state.weights.clone(), state.slots.server[SCORES].clone()
        order = self.simulation.randomness.sampling.generator("server-batches", number)
        weights[model.server_place], scores[rows] = executor.server.update(
            weights[model.server_place], received, plan.step_size, order
        )
        for client, numbers in zip(clients.tolist(), executor.numbers, strict=False):
            weights[model.client_place(client)] = numbers
        return State(number, weights, Slots({SCORES: scores}))


def _train(
    process: TransferProcess, clients: np.ndarray, state: State, step_size: float, part: range
) -> None:
    """Train some of the clients int64 (n,), and leave their numbers and what they send in the
    executor."""
    shards, executor = process.simulation.shards, process.executor
    every, of_sent = rows_of(shards.sizes), rows_of(shards.sizes[clients])
    # The server has answered whoever has taken part before.
    taught = process.present[: state.round].sum(axis=0) > 0
    for place in part:
        client, sent = int(clients[place]), of_sent[place]
        rows = every[client]
        executor.numbers[place], executor.sent[sent], executor.scores[sent] = (
            executor.client.update(
                state.weights[process.model.client_place(client)],
                (
                    shards.features[rows],
                    shards.labels[rows],
                    state.slots.server[SCORES][rows] if taught[client] else None,
                ),
                step_size,
                process.simulation.randomness.sampling.generator(
                    "tier-batches", state.round + 1, client
                ),
            )
        )


def build_transfer_process(
    simulation: Simulation, present: np.ndarray, settings: LocalTraining, workers: int
) -> TransferProcess:
    """The rounds of a simulation of FedGKT, with the means to run them.

    Args:
        present: bool (R, K), who takes part.
        workers: processes that share the clients, on a CPU.
    """
    model, shards = simulation.model, simulation.shards
    if not isinstance(model, TransferModel):
        raise TypeError(f"a model of clients and a server, not {model.name}")
    features = shards.features
    client = ClientTrainer(model, model.client, settings, features)
    client.module.eval()
    with torch.no_grad():
        sent, scores = client.module(features[:1])
    n_sent = int((present * shards.sizes).sum(axis=1).max())

    def shared(rows: int, shape: torch.Size) -> Tensor:
        flat = shared_tensor(rows, shape.numel(), features.dtype)
        return flat.view(rows, *shape).to(features.device)

    executor = TransferExecutor(
        Workers(workers if features.device.type == "cpu" else 1),
        client,
        ServerTrainer(model, model.server, settings, features),
        shared(int(present.sum(axis=1).max()), torch.Size([model.client.size])),
        shared(n_sent, sent.shape[1:]),
        shared(n_sent, scores.shape[1:]),
    )
    return TransferProcess(simulation, model, present, executor)


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
    def size(self) -> int:
        return self.initial_vector().numel()

    def initial_vector(self) -> Tensor:
        return torch.cat([tensor.flatten() for tensor in trained_tensors(self.module).values()])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors by name, as views of a vector (size,)."""
        return unflattened(trained_tensors(self.module), vector)


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
        return self.server.size + self.n_clients * self.client.size

    @property
    def server_place(self) -> slice:
        return slice(0, self.server.size)

    def client_place(self, number: int) -> slice:
        start = self.server.size + number * self.client.size
        return slice(start, start + self.client.size)

    def initial_vector(self) -> Tensor:
        one_client = self.client.initial_vector()
        return torch.cat([self.server.initial_vector(), *[one_client] * self.n_clients])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
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
