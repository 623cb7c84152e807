"""Local steps of devices that split their model: a client's gradients and a server's, one record at
a time clipped, and activations between them.

The two parts have losses of their own, and no gradient flows back through what is sent (D eqs 3 and
4), so that they are taken by themselves, each by a backend as any model's. Below a trusted head a
record's parts are clipped to C sqrt(beta) and C sqrt(1 - beta): together to C, as if it were whole,
without a norm that has to travel. A device whose server nobody trusts sends activations that are
clipped and noised, noises its own part's gradient, and its server trains on what it receives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.core.engine.backends import Backend, ReferenceBackend
from m2fdp.core.engine.clipping import clip_rows, flat_clip
from m2fdp.core.engine.execution import ExecutionSettings
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.noise import standard_normals
from m2fdp.core.engine.process import Simulation
from m2fdp.core.engine.round import Round
from m2fdp.core.engine.sequential import SequentialBackend, channels_last
from m2fdp.core.models.registry import Model
from m2fdp.core.privacy.mechanisms import Clipping, Protection
from m2fdp.core.privacy.mechanisms.base import ClientNoise
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.streams import Randomness
from m2fdp.tiers.split_models import Part, SplitChain, SplitModel

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
        activation_clip: C_z.
    """

    tiers: np.ndarray
    client_share: float
    activation_clip: float


@dataclass(frozen=True, eq=False)
class Splitter:
    """Steps units, each of which is a device, in their tiers.

    Attributes:
        norm: C, of a whole record's gradient.
        whole: the chain without heads, for devices that keep it.
        halves: client's and server's by tier.
        noise: each network's; None where nobody noises what it sends.
    """

    splits: Splits
    model: SplitModel
    norm: float
    whole: Half
    halves: Mapping[int, tuple[Half, Half]]
    noise: tuple[ClientNoise | None, ...]
    randomness: Randomness
    host: Host | None = None

    def descend(
        self,
        plan: RoundPlan,
        at: tuple[int, int],
        models: Tensor,
        owners: np.ndarray,
        devices: np.ndarray,
        batches: Minibatches,
    ) -> None:
        """One clipped gradient step of some learners' models (n, M), in place.

        Args:
            at: round and step.
            owners: int64 (u,), the place of each unit's model.
            devices: int64 (u,), the units.
        """
        eta, tiers = plan.step_size, self.splits.tiers[at[0] - 1][devices]
        noise = self.draw(plan.network, at, devices, models)
        if len(owners) == len(models) and (tiers > self.model.n_tiers).all() and noise is None:
            chain = models[:, self.model.weights_place]
            clip = Clipping("drawn", record_norm=self.norm)
            self.whole.backend.add_gradients(chain, -eta, chain, batches, clip)
            return
        before = models.clone()
        for tier in np.unique(tiers).tolist():
            rows = np.flatnonzero(tiers == tier)
            places = torch.as_tensor(owners[rows], device=models.device)
            of_rows = None if noise is None else noise.of(rows)
            gradients = self.gradients(before[places], only(batches, rows), tier, of_rows)
            models.index_add_(0, places, gradients, alpha=-eta)

    def draw(
        self, network: int, at: tuple[int, int], devices: np.ndarray, models: Tensor
    ) -> Drawn | None:
        """What devices int64 (n,) draw in a step, like models (…, M); None where none does."""
        noise = self.noise[network]
        if noise is None or not (noise.gradients[devices] > 0).any():
            return None
        # All M numbers of a device's part of the stream, of which those of its own part are used:
        # so no two devices share one.
        stream = self.randomness.noise.generator("client-noise", *at)
        gradients = standard_normals(stream, devices, models.cpu()).to(models)
        gradients *= torch.as_tensor(noise.gradients[devices, None]).to(models)
        return Drawn(devices, noise.gradients[devices] > 0, gradients, noise.activations, at)

    def gradients(
        self, models: Tensor, batches: Minibatches, tier: int, noise: Drawn | None
    ) -> Tensor:
        """Of devices in one tier, at their models (n, M): clipped, and noised where they do so."""
        exposed_rows = np.zeros(len(models), dtype=bool) if noise is None else noise.exposed
        result = torch.zeros_like(models)
        for exposed in (False, True):
            rows = np.flatnonzero(exposed_rows == exposed)
            if len(rows):
                of_rows = noise.of(rows) if noise is not None and exposed else None
                result[rows] = self._of_alike(models[rows], only(batches, rows), tier, of_rows)
        return result

    def _of_alike(
        self, models: Tensor, batches: Minibatches, tier: int, noise: Drawn | None
    ) -> Tensor:
        """Of devices of one tier that all noise what they send, or none of which does."""
        result = torch.zeros_like(models)
        if tier > self.model.n_tiers:
            _add(result, self.whole, models, batches, self.norm)
            if noise is not None:
                result[:, self.whole.places] += noise.gradients[:, self.whole.places]
            return result
        client, server = self.halves[tier]
        sent, beta = self._sent(models, batches, tier), self.splits.client_share
        if noise is None:
            _add(result, client, models, batches, self.norm * sqrt(beta))
            _add(result, server, models, sent, self.norm * sqrt(1 - beta))
            return result
        _add(result, client, models, batches, self.norm)
        result[:, client.places] += noise.gradients[:, client.places]
        sent = self._noised(sent, noise)
        if self.host is not None:
            for unit, device in enumerate(noise.devices.tolist()):
                received = result[unit, client.places]
                self.host(device, sent.records(unit)[0], received)
                result[unit, client.places] = received
        # What follows from that needs no noise; bounded steps are steadier.
        _add(result, server, models, sent, self.norm)
        return result

    def _sent(self, models: Tensor, batches: Minibatches, tier: int) -> Minibatches:
        """The same records as their servers receive them: activations at their devices' models."""
        activations, labels = [], []
        with torch.no_grad():
            for unit in range(len(models)):
                features, of_unit, _ = batches.records(unit)
                labels.append(of_unit)
                if len(of_unit):
                    activations.append(self._client(models[unit], tier, features))
        nothing = batches.features.new_zeros(0, 1)
        return replace(
            batches,
            features=torch.cat(activations) if activations else nothing,
            labels=torch.cat(labels),
            positions=np.append(np.arange(len(batches.positions) - 1), 0),
            consecutive=True,
        )

    def _client(self, vector: Tensor, tier: int, features: Tensor) -> Tensor:
        """Activations (b, …) of images, of the model (M,) cut after its first modules."""
        named = {f"whole.{name}": value for name, value in self.model.unflatten(vector).items()}
        sends = _Sends(self.model.module, tier)
        sent: Tensor = torch.func.functional_call(sends, named, (channels_last(features),))
        return sent

    def _noised(self, sent: Minibatches, noise: Drawn) -> Minibatches:
        """Every record's activations, clipped and noised."""
        values = sent.features.clone(memory_format=torch.contiguous_format)
        for unit, device in enumerate(noise.devices.tolist()):
            rows = slice(int(sent.offsets[unit]), int(sent.offsets[unit + 1]))
            clipped = values[rows].flatten(1)
            if len(clipped):
                clipped = clip_rows(clipped, self.splits.activation_clip, flat_clip)
                stream = self.randomness.noise.generator("activation-noise", *noise.at, device)
                drawn = standard_normals(stream, np.arange(len(clipped)), clipped.cpu()).to(clipped)
                drawn *= noise.activations[device]
                values[rows] = (clipped + drawn).view_as(values[rows])
        return replace(sent, features=values)


@dataclass(frozen=True, eq=False)
class Half:
    """A part of a split model as a model of its own; `places` (M_part,) are where its numbers are
    in the vector."""

    backend: Backend
    places: Tensor


@dataclass(frozen=True, eq=False)
class Drawn:
    """The noise of some devices in one local step.

    Attributes:
        devices: int64 (n,).
        exposed: bool (n,), who noises what it sends.
        gradients: (n, M), over eta; zero for others.
        activations: float64 (N_L,), deviations by device.
        at: round and step.
    """

    devices: np.ndarray
    exposed: np.ndarray
    gradients: Tensor
    activations: np.ndarray
    at: tuple[int, int]

    def of(self, rows: np.ndarray) -> Drawn:
        return replace(
            self,
            devices=self.devices[rows],
            exposed=self.exposed[rows],
            gradients=self.gradients[rows],
        )


class _Sends(nn.Module):
    """A chain, as far as the client of a tier goes."""

    def __init__(self, whole: SplitChain, tier: int) -> None:
        super().__init__()
        self.whole, self.tier = whole, tier

    def forward(self, features: Tensor) -> Tensor:
        return self.whole.client(self.tier, features)


def build_splitter(
    splits: Splits,
    model: SplitModel,
    mechanisms: Sequence[Protection],
    randomness: Randomness,
    backend_of: Callable[[Model], Backend],
) -> Splitter:
    """What steps devices in their tiers.

    Args:
        mechanisms: one for each network of the run, all of which clip records.
        backend_of: how gradients of a model are computed.
    """
    norm = mechanisms[0].clipping.record_norm
    assert norm is not None  # see `NOISE_AT_EVERY_STEP`
    cut = splits.tiers[(splits.tiers > 0) & (splits.tiers <= model.n_tiers)]

    def half(module: nn.Module, is_in: Callable[[Part], bool]) -> Half:
        """A module, with the parts of the vector that are in it."""
        numbers = torch.arange(model.n_parameters)
        places = torch.cat([numbers[part.place] for part in model.parts if is_in(part)])
        return Half(backend_of(Model(model.name, module, model.loss, linear=False)), places)

    def behind(tier: int) -> Half:
        """What the server of a client of a tier trains."""
        return half(model.modules[tier:], lambda part: (part.module or 0) > tier)

    def before(tier: int) -> Half:
        module = nn.Sequential(model.modules[:tier], model.heads[str(tier)])
        return half(module, lambda part: part.head == tier or 0 < (part.module or 0) <= tier)

    halves = {tier: (before(tier), behind(tier)) for tier in np.unique(cut).tolist()}
    whole = behind(0)
    noise = tuple(mechanism.noise.clients for mechanism in mechanisms)
    return Splitter(splits, model, norm, whole, halves, noise, randomness)


def _add(result: Tensor, half: Half, models: Tensor, batches: Minibatches, norm: float) -> None:
    """Add each device's sum of gradients in a part, clipped by themselves, to (n, M), in place."""
    sums = result.new_zeros(len(result), len(half.places))
    clip = Clipping("drawn", record_norm=norm)
    half.backend.add_gradients(sums, 1.0, models[:, half.places], batches, clip)
    result[:, half.places] += sums


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


class SplitRound(Round):
    """A round whose devices step by a `splitter`."""

    draws = Round.draws | {"clients"}
    in_blocks = False  # activations are sent at every step
    by_device = True
    splitter: Splitter

    def descend(self, tile: range, step: int, batches: Minibatches, models: Tensor) -> None:
        units = self.learners.units_of(tile)
        owners = self.learners.learner_of_unit[units] - tile.start
        at, devices = (self.drawn.number, step), self.learners.device_of_unit[units]
        self.splitter.descend(self.plan, at, models, owners, devices, batches.select(units))


def split_by(kind: type[Round], splitter: Splitter) -> type[Round]:
    """The rounds, whose devices step by a splitter."""
    return type("SplitRound", (kind,), {"splitter": splitter})


def overheard(kind: type[Round], host: Host) -> type[Round]:
    """The rounds, of which a function hears what servers that nobody trusts receive."""
    if not issubclass(kind, SplitRound):
        return kind
    return split_by(kind, replace(kind.splitter, host=host))


def in_splits(simulation: Simulation, settings: ExecutionSettings) -> type[Round] | None:
    """The rounds of a simulation whose devices split its model, and step one after the other, or,
    to be checked by eye (`reference`), one record after the other."""
    splits, model = simulation.part(Splits), simulation.model
    if splits is None or not isinstance(model, SplitModel):
        return None
    factor = simulation.rules.clip_factor
    way = ReferenceBackend if settings.backend == "reference" else SequentialBackend
    splitter = build_splitter(
        splits, model, simulation.mechanisms, simulation.randomness, lambda part: way(part, factor)
    )
    return split_by(SplitRound, splitter)
