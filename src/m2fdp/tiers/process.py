"""Rounds of clients that train parts of a split model in epochs, and are averaged (D Sec. 3.3).

A step descends two losses with a stop-gradient between them, one of the client's part and one of
the server's (D eqs 3 and 4). As both step element by element, one step of both together is the
protocol of two parties to the bit; `two_party` runs that protocol, each party by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from m2fdp.core.engine.chains import channels_last
from m2fdp.core.engine.process import Simulation, Slots, State, Work, shared_tensor
from m2fdp.core.models.losses import Loss
from m2fdp.core.models.registry import unflattened
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Streams
from m2fdp.processes.workers import Workers
from m2fdp.tiers.split_models import SplitChain, SplitModel, flattened, trained_tensors

_TINY = 1e-12  # of a batch whose images, or whose activations, are all alike
_RESULT_BYTES = 2**27  # of clients' models that are kept at a time


@dataclass(frozen=True)
class LocalTraining:
    """How clients train.

    Attributes:
        epochs: passes over the shard in a round.
        batch_size: records of a step; the last of an epoch may have fewer.
        correlation: alpha, the weight of the distance correlation in the client's loss.
        shuffling: whether the places of activations are shuffled.
        two_party: client and server step by themselves, as the reference.
    """

    epochs: int
    batch_size: int
    correlation: float = 0.0
    shuffling: bool = False
    two_party: bool = False


class FlatModule:
    """The parameters of a module in one vector, and their gradients in another. An optimizer steps
    it as a single parameter: tens of small tensors would cost it more time than their gradients
    do. Filters lie in it as convolutions like them."""

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        sizes = [parameter.numel() for parameter in parameters]
        self.values = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
        self.values.grad = torch.zeros_like(self.values)
        values, gradients = self.values.detach().split(sizes), self.values.grad.split(sizes)
        for parameter, value, gradient in zip(parameters, values, gradients, strict=True):
            parameter.data = _as_filters(value, parameter.shape)
            parameter.grad = _as_filters(gradient, parameter.shape)


def _as_filters(values: Tensor, shape: torch.Size) -> Tensor:
    """A view of a flat vector in a shape; of filters (O, I, H, W), with I running fastest."""
    if len(shape) != 4:
        return values.view(shape)
    outputs, inputs, height, width = shape
    return values.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


class NetworkTrainer:
    """Trains a copy of a network, of the type and on the device of features. All its numbers are
    read from a vector, and written to one."""

    def __init__(
        self, module: nn.Module, loss: Loss, settings: LocalTraining, features: Tensor
    ) -> None:
        self.module, self.loss = copy.deepcopy(module).to(features).train(), loss
        self.settings = settings

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        """Views of flat modules, which are made first."""
        return trained_tensors(self.module)

    def load(self, vector: Tensor) -> None:
        for name, values in unflattened(self._tensors, vector).items():
            self._tensors[name].copy_(values)

    def vector(self) -> Tensor:
        return flattened(self._tensors)

    def batches(self, labels: Tensor, order: np.random.Generator) -> Iterator[Tensor]:
        """The places of some records' minibatches, epoch by epoch."""
        for _ in range(self.settings.epochs):
            shuffled = torch.as_tensor(order.permutation(len(labels)), device=labels.device)
            yield from shuffled.split(self.settings.batch_size)

    def optimizer(self, parts: Sequence[FlatModule], step_size: float) -> Optimizer:
        """A new one of some modules."""
        return torch.optim.Adam([part.values for part in parts], lr=step_size)


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    """Step down a loss that reaches the optimizer's modules, and these alone."""
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()


class Trainer(NetworkTrainer):
    """Trains clients one after the other."""

    module: SplitChain

    def __init__(self, model: SplitModel, settings: LocalTraining, features: Tensor) -> None:
        super().__init__(model.module, model.loss, settings, features)
        self.chain = [FlatModule(module) for module in self.module.chain]
        self.heads = {int(tier): FlatModule(head) for tier, head in self.module.heads.items()}

    def update(
        self,
        vector: Tensor,
        records: tuple[Tensor, Tensor],
        client: tuple[int, int],
        step_size: float,
        draws: tuple[Streams, int],
    ) -> Tensor:
        """The vector (M,) after a client's round, from the global one (M,).

        Args:
            records: its features (n, C, H, W) and labels (n,).
            client: its index, which keys its draws, and m, the modules that it trains itself; all
                of them = the whole model, without a head.
            draws: streams of random numbers, and the round t that keys them with the client.
        """
        self.load(vector)
        (features, labels), (number, cut), (streams, round_) = records, client, draws
        order = streams.generator("tier-batches", round_, number)
        places = streams.generator("patch-shuffling", round_, number)
        # The client's and the server's, or one for both.
        sides = [self.chain[:cut], self.chain[cut:]]
        if cut < len(self.chain):
            sides[0].append(self.heads[cut])
        if not self.settings.two_party:
            sides = [sides[0] + sides[1]]
        optimizers = [self.optimizer(parts, step_size) for parts in sides if parts]
        for batch in self.batches(labels, order):
            images = channels_last(features.index_select(0, batch))
            losses = self._losses(cut, images, labels.index_select(0, batch), places)
            if not self.settings.two_party:
                losses = [torch.stack(losses).sum()]
            for optimizer, loss in zip(optimizers, losses, strict=True):
                descend(optimizer, loss)
        return self.vector()

    def _losses(
        self, cut: int, features: Tensor, labels: Tensor, places: np.random.Generator
    ) -> list[Tensor]:
        """The client's loss and the server's, or that of the whole model; means over records."""
        module, settings, loss = self.module, self.settings, self.loss
        if cut == len(self.chain):
            return [loss(module(features), labels).mean()]
        sent = module.chain[:cut](features)
        client = loss(module.heads[str(cut)](sent), labels).mean()
        if settings.correlation:
            correlation = distance_correlation(features, sent)
            client = (1 - settings.correlation) * client + settings.correlation * correlation
        received = sent.detach()
        if settings.shuffling:
            received = shuffle_places(received, places)
        return [client, loss(module.chain[cut:](received), labels).mean()]


def distance_correlation(images: Tensor, sent: Tensor) -> Tensor:
    """How far activations (B, …) tell images (B, …) apart: in [0, 1], 1 for the images themselves.

    Szekely et al. 2007, of the batch, with Euclidean distances; D's code centres their squares,
    which is another measure.
    """
    a, b = (_centred(values.flatten(1)) for values in (images, sent))
    norms = ((a * a).sum() * (b * b).sum()).sqrt()
    return ((a * b).sum() / norms.clamp_min(_TINY)).clamp_min(_TINY).sqrt()


def _centred(vectors: Tensor) -> Tensor:
    """The distances (B, B) of vectors (B, n), less the means of rows and columns."""
    distances = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    rows, columns = distances.mean(1, keepdim=True), distances.mean(0, keepdim=True)
    return distances - rows - columns + distances.mean()


def shuffle_places(sent: Tensor, draws: np.random.Generator) -> Tensor:
    """Activations (B, C, H, W) with the places of every record in an order of its own."""
    flat = sent.flatten(2)
    records, _, places = flat.shape
    order = torch.as_tensor(draws.random((records, places)).argsort(1), device=sent.device)
    return flat.gather(2, order[:, None].expand_as(flat)).view_as(sent)


def rows_of(sizes: np.ndarray) -> list[slice]:
    """Where each client's records are among all, from how many it has, int64 (K,)."""
    ends = np.cumsum(sizes)
    return [slice(*each) for each in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


class EpochProcess:
    """Rounds of a simulation on a star, whose clients train in epochs (a `Process`).

    Args:
        cuts: int64 (R, K), the modules that each client trains itself in each round; below 1 =
            it does not take part.
        workers: processes that share the clients, on a CPU.
    """

    draws: frozenset[str] = frozenset()

    def __init__(self, simulation: Simulation, cuts: np.ndarray, workers: int) -> None:
        self.simulation, self.cuts, self.present = simulation, cuts, cuts > 0
        self.workers = Workers(workers if self.features.device.type == "cpu" else 1)
        self.sizes, self.rows = simulation.shards.sizes, rows_of(simulation.shards.sizes)

    @property
    def executor(self) -> Self:
        """It executes itself."""
        return self

    @property
    def features(self) -> Tensor:
        """(R, C, H, W), of all clients."""
        return self.simulation.shards.features

    def records(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's features (n, C, H, W) and labels (n,)."""
        rows = self.rows[client]
        return self.features[rows], self.simulation.shards.labels[rows]

    def share(self, clients: np.ndarray, work: Work) -> None:
        """Call `work` with ranges of some clients, int64 (n,), in this process and others."""
        costs = self.sizes[clients].astype(np.float64)
        self.workers.share("clients", costs, work, fixed=(self,))

    def room(self, rows: int, shape: torch.Size) -> Tensor:
        """Zeros (rows, …), which other processes may write."""
        flat = shared_tensor(rows, shape.numel(), self.features.dtype)
        return flat.view(rows, *shape).to(self.features.device)


class TierProcess(EpochProcess):
    """Clients train in tiers, and the mean of their models is the next one."""

    def __init__(
        self, simulation: Simulation, cuts: np.ndarray, settings: LocalTraining, workers: int
    ) -> None:
        super().__init__(simulation, cuts, workers)
        model = simulation.model
        assert isinstance(model, SplitModel)
        self.model, self.trainer = model, Trainer(model, settings, self.features)
        at_a_time = max(_RESULT_BYTES // (4 * model.n_parameters), 1)
        n_results = min(int(self.present.sum(axis=1).max()), at_a_time)
        # The models of the clients that are trained between two sums.
        self.results = self.room(n_results, torch.Size([model.n_parameters]))

    def start(self) -> State:
        weights = self.model.initial_vector().to(self.features)
        server = self.simulation.rules.server.start(self._stepped(weights))
        return State(0, weights, Slots(server))

    def round(
        self,
        state: State,
        plan: RoundPlan,
        tap: Callable[[Literal["up"], int, Tensor], None] | None = None,
    ) -> State:
        """Everybody who takes part trains from the global model; the mean is the next one.

        Clients are summed in their order, so no result depends on the number of processes. Batch
        norm's means and variances are averaged, and no server rule steps them.
        """
        cuts, present = self.cuts[state.round], np.flatnonzero(self.present[state.round])
        weights = np.zeros(len(cuts))
        weights[present] = self.sizes[present] / self.sizes[present].sum()
        mean = torch.zeros_like(state.weights)
        places = {int(tier): self.model.head_place(int(tier)) for tier in self.model.heads}
        totals = {tier: float(weights[present][cuts[present] == tier].sum()) for tier in places}
        heads = {tier: torch.zeros_like(mean[place]) for tier, place in places.items()}
        sent = mean.new_zeros(len(cuts), len(mean)) if tap is not None else None
        for first in range(0, len(present), len(self.results)):
            clients = present[first : first + len(self.results)]
            self.share(clients, partial(self._train, clients, state, plan.step_size))
            for client, vector in zip(clients.tolist(), self.results, strict=False):
                weight, tier = float(weights[client]), int(cuts[client])
                mean.add_(vector, alpha=weight)
                if tier in heads:
                    heads[tier].add_(vector[places[tier]], alpha=weight / totals[tier])
                if sent is not None:
                    sent[client] = vector
        if tap is not None and sent is not None:
            tap("up", 1, sent)
        for tier, place in places.items():
            mean[place] = heads[tier] if totals[tier] else state.weights[place]
        stepped, server = self.simulation.rules.server.step(
            self._stepped(state.weights), self._stepped(mean), state.slots.server
        )
        following = torch.cat((stepped, mean[self.model.buffers_place]))
        return State(state.round + 1, following, Slots(server))

    def _stepped(self, vector: Tensor) -> Tensor:
        """All but what batch norm keeps."""
        return vector[: self.model.buffers_place.start]

    def _train(self, clients: np.ndarray, state: State, step_size: float, part: range) -> None:
        """Leave the models of some clients int64 (n,) in `results`."""
        draws = self.simulation.randomness.sampling, state.round + 1
        for place in part:
            number = int(clients[place])
            client = number, int(self.cuts[state.round, number])
            self.results[place] = self.trainer.update(
                state.weights, self.records(number), client, step_size, draws
            )
