"""Split models: a chain of modules that a client and a server may share, cut after any of them.

Tier m of D Sec. 3.2: the client has modules md1 … md_m and an auxiliary head, the server all that
follow. Everything that training changes is one flat vector: the chain's parameters, those of the
heads in use, and the running means and variances of batch norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor, nn

from m2fdp.config import ModelConfig
from m2fdp.errors import InputError
from m2fdp.models.checks import Shape
from m2fdp.models.cnn12 import cnn12_channels, cnn12_modules
from m2fdp.models.losses import cross_entropy
from m2fdp.models.registry import Model, resnet_plan
from m2fdp.models.resnet import ResnetPlan, averaging_head, resnet_modules, small_network
from m2fdp.streams import torch_seed

# The places where each can be cut.
SPLIT_MODELS = {"resnet": 7, "cnn12": 3}
# A head of cnn12 keeps a quarter of the image apart from the others.
_CNN12_POOL = 2
_SCORED_AT_A_TIME, _SCORED_ON_A_GPU = 64, 512


@dataclass(frozen=True)
class Part:
    """One tensor of the vector.

    Attributes:
        name: in the module.
        place: in the vector.
        shape: of the tensor.
        kind: weight, which is stepped; or buffer, which batch norm keeps.
        module: md1 … md_n that it belongs to; None for a head.
        head: the tier whose head it belongs to; None for the chain.
    """

    name: str
    place: slice
    shape: torch.Size
    kind: Literal["weight", "buffer"]
    module: int | None
    head: int | None


class SplitChain(nn.Module):
    """md1 … md_n, and heads by tier; as a module it is the chain alone."""

    def __init__(self, modules: Sequence[nn.Module], heads: dict[int, nn.Module]) -> None:
        super().__init__()
        self.chain = nn.ModuleList(modules)
        self.heads = nn.ModuleDict({str(tier): head for tier, head in heads.items()})

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, classes) of images (B, C, H, W)."""
        for module in self.chain:
            features = module(features)
        return features

    def client(self, tier: int, features: Tensor) -> Tensor:
        """What the client of a tier sends for images (B, C, H, W)."""
        for module in self.chain[:tier]:
            features = module(features)
        return features

    def server(self, tier: int, sent: Tensor) -> Tensor:
        """The server's scores (B, classes) of what a client of a tier sends."""
        for module in self.chain[tier:]:
            sent = module(sent)
        return sent

    def scores_at(self, tier: int, features: Tensor) -> Tensor:
        """See `SplitModel.scores_at`."""
        if tier == len(self.chain):
            return self(features)
        features = self.client(tier, features)
        scores = self.server(tier, features.detach())
        return torch.cat((scores, self.heads[str(tier)](features)), dim=1)


class AtTier(nn.Module):
    """A chain with the one head that a tier trains: scores (B, 2 classes)."""

    def __init__(self, whole: SplitChain, tier: int) -> None:
        super().__init__()
        heads = {} if tier == len(whole.chain) else {tier: whole.heads[str(tier)]}
        self.split = SplitChain(list(whole.chain), heads)
        self.tier = tier

    def forward(self, features: Tensor) -> Tensor:
        """The server's scores and the client's, side by side."""
        return self.split.scores_at(self.tier, features)


@dataclass(frozen=True, eq=False)
class SplitModel(Model):
    """Modules in a chain, and the heads that train each beginning of it by a loss of its own.

    As a `Model` it is the whole chain, with batch norm's running means and variances.

    Attributes:
        module: the chain and its heads.
        shape: (C, H, W) of the images.
    """

    module: SplitChain
    shape: Shape = field(kw_only=True)

    @property
    def modules(self) -> nn.ModuleList:
        """md1 … md_n; the last maps to scores (B, classes)."""
        return self.module.chain

    @property
    def heads(self) -> nn.ModuleDict:
        """By tier, as text, those in use: from what module m gives to scores (B, classes)."""
        return self.module.heads

    @property
    def n_tiers(self) -> int:
        """The places where the chain can be cut."""
        return len(self.modules) - 1

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The tensors of the vector, in their order."""
        weights = [(name, w.shape, "weight") for name, w in self.module.named_parameters()]
        # The count of batches is left out: nothing reads it where a momentum is given.
        buffers = [
            (name, buffer.shape, "buffer")
            for name, buffer in self.module.named_buffers()
            if buffer.is_floating_point()
        ]
        parts, start = [], 0
        for name, shape, kind in weights + buffers:
            place = slice(start, start + shape.numel())
            kept: Literal["weight", "buffer"] = "weight" if kind == "weight" else "buffer"
            where, number = name.split(".")[:2]
            module = int(number) + 1 if where == "chain" else None
            parts.append(Part(name, place, shape, kept, module, None if module else int(number)))
            start = place.stop
        return tuple(parts)

    @property
    def n_parameters(self) -> int:
        """M, the numbers of the vector: weights, heads and buffers."""
        return self.parts[-1].place.stop

    @property
    def weights_place(self) -> slice:
        """Where the chain's own weights are, in the vector."""
        return _span(part for part in self.parts if part.module and part.kind == "weight")

    @property
    def buffers_place(self) -> slice:
        """Where batch norm's means and variances are, in the vector; nowhere without batch norm."""
        first = sum(p.shape.numel() for p in self.parts if p.kind == "weight")
        return slice(first, self.n_parameters)

    def head_place(self, tier: int) -> slice:
        """Where the head of a tier is, in the vector."""
        return _span(part for part in self.parts if part.head == tier)

    def places_at(self, tier: int) -> tuple[slice, ...]:
        """Where the vector of `model_at` is in this one's, in order."""
        if tier == len(self.modules):
            return (self.weights_place,)
        return self.weights_place, self.head_place(tier)

    def model_at(self, tier: int) -> Model:
        """What is stepped in a tier, as a model of its own: chain and head, its loss both losses.

        Args:
            tier: m = 1 … n_tiers; one more is the whole chain, which needs no head.
        """
        loss = self.loss if tier == len(self.modules) else self.tier_loss
        return Model(f"{self.name} in tier {tier}", AtTier(self.module, tier), loss, linear=False)

    def initial_vector(self) -> Tensor:
        """w^(1): float32 (M,)."""
        tensors = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return torch.cat([tensors[part.name].detach().flatten() for part in self.parts])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Parameters and buffers by name, as views of a flat vector (M,)."""
        return {part.name: vector[part.place].view(part.shape) for part in self.parts}

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of the whole chain for features (B, C, H, W), batch norm by its
        running means and variances."""
        tensors = self.unflatten(vector)
        # Maps of many channels, on a CPU twice as fast in that layout and while they fit its cache.
        on_gpu = features.device.type != "cpu"
        parts = features.contiguous(memory_format=torch.channels_last).split(
            _SCORED_ON_A_GPU if on_gpu else _SCORED_AT_A_TIME
        )
        scores = [torch.func.functional_call(self.module, tensors, (part,)) for part in parts]
        return torch.cat(scores)

    def whole(self, features: Tensor) -> Tensor:
        """Scores (B, classes) of images (B, C, H, W) at the initial weights."""
        return self.module(features)

    def scores_at(self, tier: int, features: Tensor) -> Tensor:
        """The server's and the client's scores, side by side, at the initial weights.

        No gradient of the server's scores flows back through what the client sends, as in
        training with local losses (D eqs 3 and 4).

        Args:
            tier: m = 1 … n_tiers.
            features: images (B, C, H, W).

        Returns:
            (B, 2 classes), the server's first.
        """
        if not 1 <= tier <= self.n_tiers:
            raise ValueError(f"a tier of 1 to {self.n_tiers}, not {tier}")
        return self.module.scores_at(tier, features)

    def tier_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """What a split step descends, by record (B,): the server's loss and the client's.

        Args:
            scores: of `scores_at`, (B, 2 classes).
            labels: (B,).
        """
        server, client = scores.chunk(2, dim=1)
        return self.loss(server, labels) + self.loss(client, labels)


def build_split_model(
    config: ModelConfig, shape: Shape, n_classes: int, seed: int | None, tiers: Sequence[int]
) -> SplitModel:
    """The configured model, to be cut.

    The chain starts as the same model that is not cut does; heads have a stream of their own.

    Args:
        shape: (C, H, W) of the images.
        seed: of the initial weights; null = shapes only, without numbers, for whoever counts.
        tiers: m, the cuts whose heads are in use.

    Raises:
        InputError: a model that can't be cut, images too small for it, or a loss of one's own.
    """
    _check_splits(config)
    if config.name == "resnet":
        return _split_resnet(resnet_plan(config), shape, n_classes, seed, tiers)
    widths = cnn12_channels(config.channels, shape)

    def head(tier: int) -> nn.Module:
        pooled = [min(_CNN12_POOL, pixels >> tier) for pixels in shape[1:]]
        features = widths[tier - 1] * pooled[0] * pooled[1]
        return nn.Sequential(
            nn.AdaptiveAvgPool2d((pooled[0], pooled[1])),
            nn.Flatten(),
            nn.Linear(features, n_classes),
        )

    chain = _drawn(seed, "initialisation", lambda: cnn12_modules(widths, shape, n_classes))
    return _split("cnn12", chain, head, shape, seed, tiers)


def build_split_of_small(
    config: ModelConfig, shape: Shape, n_classes: int, seed: int | None
) -> SplitModel:
    """The configured model, cut after md1, with the small network that FedGKT's clients have behind
    it in the place of tier 1's head.

    Of D's ResNets that is what makes a ResNet of eight layers of it (D A.5); `cnn12` has no
    smaller kin, and keeps its own head of tier 1.

    Args:
        shape: (C, H, W) of the images.
        seed: of the initial weights; null = shapes only, without numbers, for whoever counts.

    Raises:
        InputError: see `build_split_model`.
    """
    _check_splits(config)
    if config.name != "resnet":
        return build_split_model(config, shape, n_classes, seed, (1,))
    return split_small_resnet(resnet_plan(config), shape, n_classes, seed)


def split_small_resnet(
    plan: ResnetPlan, shape: Shape, n_classes: int, seed: int | None = None
) -> SplitModel:
    """See `build_split_of_small`."""
    chain = _drawn(seed, "initialisation", lambda: resnet_modules(plan, shape, n_classes))

    def head(tier: int) -> nn.Module:
        return small_network(plan, n_classes)

    return _split(plan.name, chain, head, shape, seed, (1,))


def split_resnet(
    depth: int, width: int, shape: Shape, n_classes: int, seed: int | None = None
) -> SplitModel:
    """D's ResNet in eight modules, with the heads of its seven tiers.

    Args:
        depth: 18 b + 2 layers, such as 56 and 110.
        width: channels of md1; D's is 16.
        shape: (C, H, W) of the images.
        seed: of the initial weights (He et al. 2015, fan out); null = shapes only, without
            numbers, for whoever counts.

    Raises:
        InputError: images too small for the two strides.
        ValueError: no such depth.
    """
    return _split_resnet(ResnetPlan(depth, width), shape, n_classes, seed, range(1, 8))


def _check_splits(config: ModelConfig) -> None:
    if config.name not in SPLIT_MODELS:
        raise InputError(
            "model.name",
            config.name,
            f"is none of {', '.join(SPLIT_MODELS)}, the models that are trained in tiers",
        )
    if config.loss is not None:
        raise InputError("model.loss", config.loss, "is not for models in tiers; use null")


def _split_resnet(
    plan: ResnetPlan, shape: Shape, n_classes: int, seed: int | None, tiers: Sequence[int]
) -> SplitModel:
    chain = _drawn(seed, "initialisation", lambda: resnet_modules(plan, shape, n_classes))
    outputs = plan.outputs

    def head(tier: int) -> nn.Module:
        return averaging_head(outputs[tier - 1], n_classes)

    return _split(plan.name, chain, head, shape, seed, tiers)


def _split(
    name: str,
    chain: Sequence[nn.Module],
    head: Callable[[int], nn.Module],
    shape: Shape,
    seed: int | None,
    tiers: Sequence[int],
) -> SplitModel:
    """Args: head: of a tier."""
    heads = {}
    for tier in sorted(set(tiers) - {len(chain)}):
        (heads[tier],) = _drawn(seed, f"head {tier}", partial(_listed, head, tier))
    module = SplitChain(chain, heads).eval()
    return SplitModel(name, module, cross_entropy, linear=False, shape=shape)


def _listed(head: Callable[[int], nn.Module], tier: int) -> list[nn.Module]:
    return [head(tier)]


def _drawn(
    seed: int | None, purpose: str, build: Callable[[], Sequence[nn.Module]]
) -> Sequence[nn.Module]:
    """Modules with weights drawn from the seed, or without any."""
    if seed is None:
        with torch.device("meta"):
            return build()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, purpose))
        return build()


def _span(parts: Iterable[Part]) -> slice:
    """From the first of neighbouring parts to the last."""
    places = [part.place for part in parts]
    return slice(places[0].start, places[-1].stop)
