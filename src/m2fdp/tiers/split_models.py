"""Split models: a chain of modules that a client and a server may share, cut after any of them.

Tier m of D Sec. 3.2: the client has modules md1 … md_m and an auxiliary head, the server all that
follow. Everything that training changes is one flat vector: the chain's parameters, those of the
heads in use, and the running means and variances of batch norm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError, among
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.losses import cross_entropy
from m2fdp.core.models.registry import Model, unflattened
from m2fdp.core.streams import torch_seed
from m2fdp.nets import SPLIT_MODELS
from m2fdp.nets.resnet import (
    averaging_head,
    channels_after,
    resnet_modules,
    resnet_name,
    small_network,
)
from m2fdp.nets.small import cnn12_channels, cnn12_modules

# A head of cnn12 keeps a quarter of the image apart from the others.
_CNN12_POOL = 2
_SCORED_AT_A_TIME, _SCORED_ON_A_GPU = 64, 512
Built = TypeVar("Built")


@dataclass(frozen=True)
class Part:
    """One tensor of the vector, and where it lies there.

    Attributes:
        is_weight: whether it is stepped; else batch norm keeps it.
        module: md1 … md_n that it belongs to; None for a head.
        head: the tier whose head it belongs to; None for the chain.
    """

    name: str
    place: slice
    is_weight: bool
    module: int | None
    head: int | None


class SplitChain(nn.Module):
    """md1 … md_n, and heads by tier; as a module it is the chain alone."""

    def __init__(self, modules: Sequence[nn.Module], heads: dict[int, nn.Module]) -> None:
        super().__init__()
        self.chain = nn.Sequential(*modules)
        self.heads = nn.ModuleDict({str(tier): head for tier, head in heads.items()})

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, classes) of images (B, C, H, W)."""
        return self.chain(features)


@dataclass(frozen=True, eq=False)
class SplitModel(Model):
    """Modules in a chain, and the heads that train each beginning of it by a loss of its own. As a
    `Model` it is the whole chain, with batch norm's running means and variances."""

    module: SplitChain
    shape: Shape = field(kw_only=True)

    @property
    def modules(self) -> nn.Sequential:
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
    def tensors(self) -> dict[str, Tensor]:
        """What the vector holds, by name, in its order."""
        return trained_tensors(self.module)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The tensors of the vector, in their order."""
        weights, parts, start = dict(self.module.named_parameters()), [], 0
        for name, tensor in self.tensors.items():
            place = slice(start, start + tensor.numel())
            branch, number = name.split(".")[:2]
            module = int(number) + 1 if branch == "chain" else None
            head = None if module else int(number)
            parts.append(Part(name, place, name in weights, module, head))
            start = place.stop
        return tuple(parts)

    @property
    def n_parameters(self) -> int:
        """M, the numbers of the vector: weights, heads and buffers."""
        return self.parts[-1].place.stop

    @property
    def weights_place(self) -> slice:
        """Where the chain's own weights are, in the vector: in front."""
        return slice(0, max(p.place.stop for p in self.parts if p.module and p.is_weight))

    @property
    def buffers_place(self) -> slice:
        """Where batch norm's means and variances are, in the vector; nowhere without batch norm."""
        return slice(max(p.place.stop for p in self.parts if p.is_weight), self.n_parameters)

    def head_place(self, tier: int) -> slice:
        """Where the head of a tier is, in the vector."""
        places = [part.place for part in self.parts if part.head == tier]
        return slice(places[0].start, places[-1].stop)

    def initial_vector(self) -> Tensor:
        return flattened(self.tensors)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Parameters and buffers by name, as views of a flat vector (M,)."""
        return unflattened(self.tensors, vector)

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of the whole chain, batch norm by its running means and variances."""
        return scored(self.module, self.unflatten(vector), features)


def trained_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, then what batch norm keeps, by name, without its count of batches, which nothing
    reads where a momentum is given."""
    buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    tensors = {**dict(module.named_parameters()), **buffers}
    return {name: tensor.detach() for name, tensor in tensors.items()}


def count_numbers(module: nn.Module) -> int:
    """How many numbers training changes of it."""
    return sum(tensor.numel() for tensor in trained_tensors(module).values())


def flattened(tensors: Mapping[str, Tensor]) -> Tensor:
    """All numbers of some tensors, one after the other: the other way of `unflattened`."""
    return torch.cat([tensor.flatten() for tensor in tensors.values()])


def scored(module: nn.Module, tensors: dict[str, Tensor], maps: Tensor) -> Tensor:
    """Scores (B, classes) of a module with these tensors for maps (B, C, H, W), few at a time.
    Many channels are twice as fast on a CPU in this layout, while they fit its cache."""
    at_a_time = _SCORED_AT_A_TIME if maps.device.type == "cpu" else _SCORED_ON_A_GPU
    parts = maps.contiguous(memory_format=torch.channels_last).split(at_a_time)
    return torch.cat([torch.func.functional_call(module, tensors, (part,)) for part in parts])


def build_split_model(
    config: ModelConfig,
    shape: Shape,
    n_classes: int,
    seed: int | None,
    tiers: Sequence[int],
    small: bool = False,
) -> SplitModel:
    """The configured model, to be cut. The chain starts as the same model that is not cut does;
    heads have a stream of their own.

    Args:
        seed: None = shapes only, without numbers.
        tiers: m, the cuts whose heads are in use; after the last module there is none.
        small: whether a ResNet's head is the small network that FedGKT's clients have behind md1,
            which makes eight layers of it (D A.5); `cnn12` has no smaller kin.
    """
    if config.name not in SPLIT_MODELS:
        problem = f"can't be trained in tiers; models that can: {among(config.name, SPLIT_MODELS)}"
        raise InputError("model.name", config.name, problem)
    if config.loss is not None:
        raise InputError("model.loss", config.loss, "is not for models in tiers; use null")
    if config.name == "resnet":
        name, modules = resnet_name(config), partial(resnet_modules, config, shape, n_classes)

        def head(tier: int) -> nn.Module:
            if small:
                return small_network(config, n_classes)
            return averaging_head(channels_after(config, tier), n_classes)

    else:
        widths = cnn12_channels(config.channels, shape)
        name, modules = "cnn12", partial(cnn12_modules, widths, shape, n_classes)

        def head(tier: int) -> nn.Module:
            rows, columns = (min(_CNN12_POOL, pixels >> tier) for pixels in shape[1:])
            last = nn.Linear(widths[tier - 1] * rows * columns, n_classes)
            return nn.Sequential(nn.AdaptiveAvgPool2d((rows, columns)), nn.Flatten(), last)

    chain = _drawn(seed, "initialisation", modules)
    in_use = sorted(set(tiers) - {len(chain)})
    heads = {tier: _drawn(seed, f"head {tier}", partial(head, tier)) for tier in in_use}
    module = SplitChain(chain, heads).eval()
    return SplitModel(name, module, cross_entropy, linear=False, shape=shape)


def _drawn(seed: int | None, purpose: str, build: Callable[[], Built]) -> Built:
    """Modules with weights drawn from the seed; without one, without any."""
    if seed is None:
        with torch.device("meta"):
            return build()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, purpose))
        return build()
