"""FedGKT (He et al. 2020): clients and a server teach each other by scores, and share no weights.

A client trains md1 and a small network of its own, which nobody averages, and sends activations,
scores and labels of its records. The server trains md2 to the last module on all of them, and sends
scores back. Each side descends the cross-entropy and, once the other's scores are there, their
divergence from its own at temperature 3.

He et al. leave Adam's moments from round to round and use amsgrad and a weight decay of 1e-4. Here
both sides step as the clients of all algorithms in tiers do: by `training`'s optimizer, step size
and weight decay, made anew in every round and without amsgrad, so that no method of a comparison
has an optimizer of its own. The server's batches are of all clients' records together, in a keyed
order; those of He et al. are of one client after the other, which forgets the first.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from m2fdp.core.engine.backends.layout import channels_last
from m2fdp.core.engine.process import Slots, State, Tap
from m2fdp.core.engine.simulation import Simulation, shared_tensor
from m2fdp.core.models.losses import distillation
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Streams
from m2fdp.processes.workers import Workers
from m2fdp.tiers.local import FlatModule, LocalTraining, Stepper, rows_of
from m2fdp.tiers.split_models import trained_tensors
from m2fdp.tiers.transfer_models import Side, TransferModel

TEMPERATURE = 3.0
_SENT_AT_A_TIME = 64
# The server's scores of all training records, as the clients have them.
SCORES = "scores"


class SideTrainer:
    """Trains one side's network on a copy of it, which it writes to.

    Args:
        features: whose type and device the copy has.
    """

    def __init__(
        self, model: TransferModel, side: Side, settings: LocalTraining, features: Tensor
    ) -> None:
        self.loss, self.settings = model.loss, settings
        self.module = copy.deepcopy(side.module).to(features).train()
        self._side, self._flat = side, FlatModule(self.module)
        self._tensors = trained_tensors(self.module)

    def load(self, vector: Tensor) -> None:
        """Take the numbers of a vector (size,)."""
        for name, values in self._side.unflatten(vector).items():
            self._tensors[name].copy_(values)

    def vector(self) -> Tensor:
        """The numbers now, (size,)."""
        return torch.cat([tensor.flatten() for tensor in self._tensors.values()])

    def stepper(self, step_size: float) -> Stepper:
        """A new optimizer."""
        return Stepper([self._flat], self.settings, step_size)

    def objective(self, scores: Tensor, labels: Tensor, taught: Tensor | None) -> Tensor:
        """The mean over records of what a step descends.

        Args:
            scores: this side's, (B, classes).
            taught: the other side's, (B, classes), if there are any.
        """
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
        """A client's numbers (size,) after its epochs, and what it then sends.

        Args:
            numbers: its numbers before.
            records: its features (n, C, H, W), labels (n,), and the server's scores (n, classes)
                if it has been sent any.

        Returns:
            Its numbers; activations (n, …) and scores (n, classes) of its records in their order,
            batch norm by its running means and variances, as whoever uses the model has it.
        """
        self.load(numbers)
        features, labels, taught = records
        stepper = self.stepper(step_size)
        self.module.train()
        for _ in range(self.settings.epochs):
            shuffled = torch.as_tensor(order.permutation(len(labels)), device=labels.device)
            for batch in shuffled.split(self.settings.batch_size):
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
        """The server's numbers (size,) after a pass over all, and what it sends back.

        Args:
            numbers: its numbers before.
            received: activations (n, …), labels (n,) and scores (n, classes) of all clients.

        Returns:
            Its numbers; its scores (n, classes), those by which it has stepped: to compute them
            anew would cost another pass over everything.
        """
        self.load(numbers)
        activations, labels, taught = received
        stepper, answers = self.stepper(step_size), torch.zeros_like(taught)
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
        shards, executor = self.simulation.shards, self.executor
        streams, number = self.simulation.randomness.sampling, state.round + 1
        clients = np.flatnonzero(self.present[state.round])
        held = self._train(clients, state, plan.step_size)
        rows = torch.cat([torch.arange(r.start, r.stop) for r in held]).to(shards.labels.device)
        received = (
            executor.sent[: len(rows)],
            shards.labels.index_select(0, rows),
            executor.scores[: len(rows)],
        )
        weights, scores = state.weights.clone(), state.slots.server[SCORES].clone()
        weights[self.model.server_place], scores[rows] = executor.server.update(
            weights[self.model.server_place],
            received,
            plan.step_size,
            streams.generator("server-batches", number),
        )
        for client, numbers in zip(clients.tolist(), executor.numbers, strict=False):
            weights[self.model.client_place(client)] = numbers
        return State(number, weights, Slots({SCORES: scores}))

    def _train(self, clients: np.ndarray, state: State, step_size: float) -> list[slice]:
        """Train clients, leave their numbers and what they send in the executor, and tell where
        among all records theirs are."""
        shards = self.simulation.shards
        every = rows_of(shards.sizes)
        held = [every[client] for client in clients]
        sent_rows = rows_of(shards.sizes[clients])
        # The server has answered whoever has taken part before.
        taught = self.present[: state.round].sum(axis=0) > 0
        draws = self.simulation.randomness.sampling, state.round + 1
        slots = [
            _Slot(
                int(client),
                rows,
                sent,
                state.weights[self.model.client_place(int(client))],
                state.slots.server[SCORES][rows] if taught[client] else None,
            )
            for client, rows, sent in zip(clients, held, sent_rows, strict=True)
        ]
        work = partial(_train, self, slots, step_size, draws)
        fixed = (self, self.simulation.randomness.sampling)
        costs = shards.sizes[clients].astype(np.float64)
        self.executor.workers.share("clients", costs, work, fixed=fixed)
        return held


@dataclass(frozen=True, eq=False)
class _Slot:
    """A client's part in a round: its number, where its records are among all, where what it sends
    lies in the executor, its numbers (size,) before, and the scores that it was sent, if any."""

    client: int
    rows: slice
    sent: slice
    numbers: Tensor
    taught: Tensor | None


def _train(
    process: TransferProcess,
    slots: Sequence[_Slot],
    step_size: float,
    draws: tuple[Streams, int],
    part: range,
) -> None:
    """Train some of the clients, and leave their numbers and what they send in the executor."""
    shards, executor = process.simulation.shards, process.executor
    streams, number = draws
    for place in part:
        slot = slots[place]
        executor.numbers[place], executor.sent[slot.sent], executor.scores[slot.sent] = (
            executor.client.update(
                slot.numbers,
                (shards.features[slot.rows], shards.labels[slot.rows], slot.taught),
                step_size,
                streams.generator("tier-batches", number, slot.client),
            )
        )


def build_transfer_process(
    simulation: Simulation,
    present: np.ndarray,
    settings: LocalTraining,
    workers: int,
) -> TransferProcess:
    """The rounds of a simulation of FedGKT, with the means to run them.

    Args:
        present: bool (R, K), who takes part.
        workers: processes that share the clients, on a CPU.

    Raises:
        TypeError: the model is not of clients and a server.
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
