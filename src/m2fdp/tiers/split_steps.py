"""Local steps of devices that split their model: a client's gradients and a server's, one record at
a time clipped, and activations between them.

The two parts have losses of their own, and no gradient flows back through what is sent (D eqs 3 and
4), so that they are taken by themselves, each by a backend as any model's. Below a trusted head a
record's parts are clipped to C sqrt(beta) and C sqrt(1 - beta): together to C, as if it were whole,
without a norm that has to travel. A device whose server nobody trusts sends activations that are
clipped and noised, noises its own part's gradient, and its server trains on what it receives.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.core.engine.backends import Backend, ReferenceBackend
from m2fdp.core.engine.chains import channels_last
from m2fdp.core.engine.clipping import clip_rows
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.noise import standard_normals
from m2fdp.core.engine.process import Simulation
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.rules import flat_clip
from m2fdp.core.engine.sequential import SequentialBackend
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import ClientNoise, Clipping
from m2fdp.tiers.config import SplitPrivacy
from m2fdp.tiers.split_models import Part, SplitModel, trained_tensors

# Called with what a server that nobody trusts receives of a device in a step: the device, its
# records' activations (b, …), and its part's gradient (M_client,), over eta. What is written into
# them is what the step goes on with.
Host = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True, eq=False)
class Splits:
    """Who splits the model where, and what bounds the parts.

    Attributes:
        tiers: int64 (T, N_L), 1 … n_tiers of each device in each round; one more is the whole
            model, on the device; below 1 = it does not take part.
        client_share: beta.
    """

    tiers: np.ndarray
    client_share: float


@dataclass(frozen=True, eq=False)
class Half:
    """A part of a split model as a model of its own; `places` (M_part,) of its numbers in the
    vector."""

    backend: Backend
    places: Tensor

    def add(self, result: Tensor, models: Tensor, batches: Minibatches, norm: float) -> None:
        """Add each device's sum of gradients, clipped by themselves, to (n, M), in place."""
        sums = result.new_zeros(len(result), len(self.places))
        clip = Clipping("drawn", record_norm=norm)
        self.backend.add_gradients(sums, 1.0, models[:, self.places], batches, clip)
        result[:, self.places] += sums


class SplitRound(Round):
    """A round whose devices step in their tiers.

    Attributes:
        whole: the chain without heads, for devices that keep it.
        halves: client's and server's by tier.
        host: who hears what servers that nobody trusts receive.
    """

    draws = Round.draws | {"clients"}
    in_blocks = False  # activations are sent at every step
    by_device = True
    splits: Splits
    model: SplitModel
    whole: Half
    halves: Mapping[int, tuple[Half, Half]]
    host: Host | None = None

    @property
    def norm(self) -> float:
        """C, of a whole record's gradient."""
        norm = self.mechanism.clipping.record_norm
        assert norm is not None  # see `NOISE_AT_EVERY_STEP`
        return norm

    @property
    def client_noise(self) -> ClientNoise:
        """What each device adds itself, (N_L,)."""
        nothing = np.zeros(self.tree.n_devices)
        return self.mechanism.noise.clients or ClientNoise(nothing, nothing)

    def descend(self, tile: range, step: int, batches: Minibatches, models: Tensor) -> None:
        learners, units = self.learners, self.learners.units_of(tile)
        owners = learners.learner_of_unit[units] - tile.start
        devices = learners.device_of_unit[units]
        batches, tiers = batches.select(units), self.splits.tiers[self.drawn.number - 1][devices]
        exposed = self.client_noise.gradients[devices] > 0
        all_keep = len(owners) == len(models) and (tiers > self.model.n_tiers).all()
        if all_keep and not exposed.any():
            chain = models[:, self.model.weights_place]
            clip = Clipping("drawn", record_norm=self.norm)
            self.whole.backend.add_gradients(chain, -self.eta, chain, batches, clip)
            return
        before = models.clone()
        drawn = self._drawn(devices, step, models) if exposed.any() else None
        for tier, alone in np.unique(np.stack([tiers, exposed], axis=1), axis=0).tolist():
            rows = np.flatnonzero((tiers == tier) & (exposed == alone))
            places = torch.as_tensor(owners[rows], device=models.device)
            noise = drawn[rows] if drawn is not None and alone else None
            of_rows, at = only(batches, rows), (devices[rows], step)
            gradients = self._gradients(before[places], of_rows, tier, at, noise)
            models.index_add_(0, places, gradients, alpha=-self.eta)

    def _drawn(self, devices: np.ndarray, step: int, models: Tensor) -> Tensor:
        """What devices int64 (n,) add to their gradients in a step, over eta, like models (…, M).

        All M numbers of a device's part of the stream, of which those of its own part are used: so
        no two devices share one.
        """
        at, deviations = (self.drawn.number, step), self.client_noise.gradients[devices]
        stream = self.simulation.randomness.noise.generator("client-noise", *at)
        drawn = standard_normals(stream, devices, models.cpu()).to(models)
        return drawn.mul_(torch.as_tensor(deviations[:, None]).to(models))

    def _gradients(
        self,
        models: Tensor,
        batches: Minibatches,
        tier: int,
        at: tuple[np.ndarray, int],
        noise: Tensor | None,
    ) -> Tensor:
        """Of devices int64 (n,) in one tier, in a step, at their models (n, M): clipped, and noised
        where they all do so."""
        result, norm, beta = torch.zeros_like(models), self.norm, self.splits.client_share
        own, others = self.halves.get(tier, (self.whole, None))
        if noise is None and others is not None:
            sent = self._sent(models, batches, tier)
            own.add(result, models, batches, norm * sqrt(beta))
            others.add(result, models, sent, norm * sqrt(1 - beta))
            return result
        own.add(result, models, batches, norm)
        if noise is not None:
            result[:, own.places] += noise[:, own.places]
        if others is not None:
            sent = self._noised(self._sent(models, batches, tier), *at)
            if self.host is not None:
                for unit, device in enumerate(at[0].tolist()):
                    received = result[unit, own.places]
                    self.host(device, sent.records(unit)[0], received)
                    result[unit, own.places] = received
            # What follows from that needs no noise; bounded steps are steadier.
            others.add(result, models, sent, norm)
        return result

    def _sent(self, models: Tensor, batches: Minibatches, tier: int) -> Minibatches:
        """The same records as their servers receive them: activations at their devices' models."""
        sends = self.model.modules[:tier]
        own = trained_tensors(sends)
        activations, labels = [], []
        with torch.no_grad():
            for unit, vector in enumerate(models):
                features, of_unit, _ = batches.records(unit)
                labels.append(of_unit)
                if len(of_unit):
                    tensors = self.model.unflatten(vector)
                    named = {name: tensors[f"chain.{name}"] for name in own}
                    images = (channels_last(features),)
                    activations.append(torch.func.functional_call(sends, named, images))
        nothing = batches.features.new_zeros(0, 1)
        return replace(
            batches,
            features=torch.cat(activations) if activations else nothing,
            labels=torch.cat(labels),
            positions=np.append(np.arange(len(batches.positions) - 1), 0),
            consecutive=True,
        )

    def _noised(self, sent: Minibatches, devices: np.ndarray, step: int) -> Minibatches:
        """Every record's activations, clipped and noised."""
        values = sent.features.clone(memory_format=torch.contiguous_format)
        streams, number = self.simulation.randomness.noise, self.drawn.number
        for unit, device in enumerate(devices.tolist()):
            rows = slice(int(sent.offsets[unit]), int(sent.offsets[unit + 1]))
            clipped = values[rows].flatten(1)
            if len(clipped):
                clipped = clip_rows(clipped, SplitPrivacy.activation_clip, flat_clip)
                stream = streams.generator("activation-noise", number, step, device)
                drawn = standard_normals(stream, np.arange(len(clipped)), clipped.cpu()).to(clipped)
                drawn *= self.client_noise.activations[device]
                values[rows] = (clipped + drawn).view_as(values[rows])
        return replace(sent, features=values)


def only(batches: Minibatches, rows: np.ndarray) -> Minibatches:
    """The minibatches of some learners, int64 (n,)."""
    parts = [np.arange(*batches.offsets[row : row + 2]) for row in rows.tolist()]
    chosen = np.concatenate([*parts, [len(batches.positions) - 1]]).astype(np.int64)
    return replace(
        batches,
        positions=batches.positions[chosen],
        weights=batches.weights[chosen],
        offsets=np.concatenate([[0], np.cumsum(batches.counts[rows])]),
    )


def overheard(kind: type[Round], host: Host) -> type[Round]:
    """The rounds, of which a function hears what servers that nobody trusts receive."""
    if not issubclass(kind, SplitRound):
        return kind
    return type("SplitRound", (kind,), {"host": staticmethod(host)})


def in_splits(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation whose devices split its model. They step one after the other; by
    the `reference`, one record after the other."""
    splits, model = simulation.part(Splits), simulation.model
    if splits is None or not isinstance(model, SplitModel):
        return None
    factor, numbers = simulation.rules.clip_factor, torch.arange(model.n_parameters)
    way = ReferenceBackend if settings.backend == "reference" else SequentialBackend

    def half(module: nn.Module, is_in: Callable[[Part], bool]) -> Half:
        """A module, with the parts of the vector that are in it."""
        places = torch.cat([numbers[part.place] for part in model.parts if is_in(part)])
        return Half(way(Model(model.name, module, model.loss), factor), places)

    def behind(tier: int) -> Half:
        return half(model.modules[tier:], lambda part: (part.module or 0) > tier)

    def before(tier: int) -> Half:
        module = nn.Sequential(model.modules[:tier], model.heads[str(tier)])
        return half(module, lambda part: part.head == tier or 0 < (part.module or 0) <= tier)

    halves = {tier: (before(tier), behind(tier)) for tier in map(int, model.heads)}
    parts = {"splits": splits, "model": model, "whole": behind(0), "halves": halves}
    return type("SplitRound", (SplitRound,), parts)
