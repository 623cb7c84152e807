"""What a client and its server make of a split model in one round: epochs over a shard.

A step descends two losses with a stop-gradient between them, one of the client's part and one of
the server's (D eqs 3 and 4). As both step element by element, one step of both together is the
protocol of two parties to the bit; `two_party` runs that protocol, each party by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.core.engine.sequential import channels_last
from m2fdp.core.streams import Streams
from m2fdp.tiers.split_models import SplitModel, trained_tensors

# Of a batch whose images, or whose activations, are all alike.
_TINY = 1e-12


@dataclass(frozen=True)
class LocalTraining:
    """How clients train.

    Attributes:
        epochs: passes over the shard in a round.
        batch_size: records of a step; the last of an epoch may have fewer.
        optimizer: kind that is made anew in every round.
        correlation: alpha, the weight of the distance correlation in the client's loss.
        shuffling: whether the places of activations are shuffled.
        two_party: client and server step by themselves, as the reference.
    """

    epochs: int
    batch_size: int
    optimizer: Literal["adam", "sgd"] = "adam"
    correlation: float = 0.0
    shuffling: bool = False
    two_party: bool = False


@dataclass(frozen=True)
class Client:
    """One client in one round.

    Attributes:
        number: its index, which keys its draws.
        rows: places of its records among all.
        cut: m, the modules that it trains itself; all of them = the whole model, without a head.
    """

    number: int
    rows: slice
    cut: int


def rows_of(sizes: np.ndarray) -> list[slice]:
    """Where each client's records are among all, from how many it has, int64 (K,)."""
    ends = np.cumsum(sizes)
    return [slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]


class NetworkTrainer:
    """Writes to a network, whose numbers `unflatten` names in a vector; flat modules come first."""

    def __init__(
        self,
        module: nn.Module,
        unflatten: Callable[[Tensor], dict[str, Tensor]],
        settings: LocalTraining,
    ) -> None:
        self.settings = settings
        self._tensors, self._unflatten = trained_tensors(module), unflatten

    def load(self, vector: Tensor) -> None:
        for name, values in self._unflatten(vector).items():
            self._tensors[name].copy_(values)

    def vector(self) -> Tensor:
        return torch.cat([tensor.flatten() for tensor in self._tensors.values()])

    def batches(self, labels: Tensor, order: np.random.Generator) -> Iterator[Tensor]:
        """The places of some records' minibatches, epoch by epoch."""
        for _ in range(self.settings.epochs):
            shuffled = torch.as_tensor(order.permutation(len(labels)), device=labels.device)
            yield from shuffled.split(self.settings.batch_size)


class Trainer(NetworkTrainer):
    """Trains clients one after the other on a copy of the model.

    Args:
        features: whose type and device the copy has.
    """

    def __init__(self, model: SplitModel, settings: LocalTraining, features: Tensor) -> None:
        self.module, self.loss = copy.deepcopy(model.module).to(features).train(), model.loss
        self.chain = [FlatModule(module) for module in self.module.chain]
        self.heads = {int(tier): FlatModule(head) for tier, head in self.module.heads.items()}
        super().__init__(self.module, model.unflatten, settings)

    def update(
        self,
        vector: Tensor,
        records: tuple[Tensor, Tensor],
        client: Client,
        step_size: float,
        draws: tuple[Streams, int],
    ) -> Tensor:
        """The vector (M,) after a client's round, from the global one (M,).

        Args:
            records: features (R, C, H, W) and labels (R,) of all clients.
            draws: streams of random numbers, and the round t that keys them with the client.
        """
        self.load(vector)
        features, labels = (values[client.rows] for values in records)
        streams, round_ = draws
        order = streams.generator("tier-batches", round_, client.number)
        places = streams.generator("patch-shuffling", round_, client.number)
        steppers = self._optimizers(client.cut, step_size)
        for batch in self.batches(labels, order):
            images = channels_last(features.index_select(0, batch))
            losses = self._losses(client.cut, images, labels.index_select(0, batch), places)
            if not self.settings.two_party:
                losses = [torch.stack(losses).sum()]
            for stepper, loss in zip(steppers, losses, strict=True):
                stepper.step(loss)
        return self.vector()

    def _optimizers(self, cut: int, step_size: float) -> list[Stepper]:
        """The client's and the server's, or one for both."""
        client = [*self.chain[:cut], *([self.heads[cut]] if cut < len(self.chain) else [])]
        sides = [client, self.chain[cut:]]
        if not self.settings.two_party:
            sides = [sides[0] + sides[1]]
        return [Stepper(parts, self.settings, step_size) for parts in sides if parts]

    def _losses(
        self, cut: int, features: Tensor, labels: Tensor, places: np.random.Generator
    ) -> list[Tensor]:
        """The client's loss and the server's, or that of the whole model; means over records."""
        module, settings, loss = self.module, self.settings, self.loss
        if cut == len(self.chain):
            return [loss(module(features), labels).mean()]
        sent = module.client(cut, features)
        client = loss(module.heads[str(cut)](sent), labels).mean()
        if settings.correlation:
            correlation = distance_correlation(features, sent)
            client = (1 - settings.correlation) * client + settings.correlation * correlation
        received = sent.detach()
        if settings.shuffling:
            received = shuffle_places(received, places)
        return [client, loss(module.server(cut, received), labels).mean()]


class FlatModule:
    """The parameters of a module in one vector, and their gradients in another.

    An optimizer steps it as a single parameter: tens of small tensors would cost it more time
    than their gradients do. Filters lie in it as convolutions like them.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        sizes = [parameter.numel() for parameter in parameters]
        self.values = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
        self.values.grad = torch.zeros_like(self.values)
        views = zip(
            parameters,
            self.values.detach().split(sizes),
            self.values.grad.split(sizes),
            strict=True,
        )
        for parameter, values, gradient in views:
            parameter.data = _as_filters(values, parameter.shape)
            parameter.grad = _as_filters(gradient, parameter.shape)


def _as_filters(values: Tensor, shape: torch.Size) -> Tensor:
    """A view of a flat vector in a shape; of filters (O, I, H, W), with I running fastest."""
    if len(shape) != 4:
        return values.view(shape)
    outputs, inputs, height, width = shape
    return values.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


class Stepper:
    """A new optimizer of some modules."""

    def __init__(
        self, parts: Sequence[FlatModule], settings: LocalTraining, step_size: float
    ) -> None:
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
        values = [part.values for part in parts]
        self.optimizer = kind(values, lr=step_size)

    def step(self, loss: Tensor) -> None:
        """Down a loss that reaches these modules, and these alone."""
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()


def distance_correlation(images: Tensor, sent: Tensor) -> Tensor:
    """How far activations (B, …) tell images (B, …) apart that differ: in [0, 1], 1 for the images
    themselves.

    Szekely et al. 2007, of the batch, with distances that are Euclidean; D's code centres their
    squares, which is another measure.
    """
    a, b = (_centred(values.flatten(1)) for values in (images, sent))
    norms = ((a * a).sum() * (b * b).sum()).sqrt()
    return ((a * b).sum() / norms.clamp_min(_TINY)).clamp_min(_TINY).sqrt()


def shuffle_places(sent: Tensor, draws: np.random.Generator) -> Tensor:
    """Activations (B, C, H, W) with the places of every record in an order of its own."""
    flat = sent.flatten(2)
    records, _, places = flat.shape
    order = torch.as_tensor(draws.random((records, places)).argsort(1), device=sent.device)
    return flat.gather(2, order[:, None].expand_as(flat)).view_as(sent)


def _centred(vectors: Tensor) -> Tensor:
    """The distances (B, B) of vectors (B, n), less the means of rows and columns."""
    distances = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    rows, columns = distances.mean(1, keepdim=True), distances.mean(0, keepdim=True)
    return distances - rows - columns + distances.mean()
