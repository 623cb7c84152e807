"""What a tier of a split model costs client and server: FLOPs, bytes and simulated seconds.

Weights and wall clocks are never read: all times of a run are known before it is trained (D eq. 5).
"""

from dataclasses import dataclass
from functools import cache
from math import nan
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.checks import Shape
from m2fdp.core.streams import generator
from m2fdp.nets import SPLIT_MODELS
from m2fdp.tiers.config import ClockConfig
from m2fdp.tiers.split_models import SplitModel, build_split_model, count_numbers

GIGA = 1e9
# Of a float32, and of a record's label, which is sent with its activations.
BYTES_PER_NUMBER, LABEL_BYTES = 4, 8.0
# D A.5 splits the global model after md2 for SplitFed.
SPLITFED_MODULES = 2
# md1 has no gradient in its input, so that a forward pass is half of its FLOPs; a third of others'.
_FORWARD_OF_FIRST, _FORWARD = 1 / 2, 1 / 3
CIFAR_SHAPE, CIFAR_CLASSES = (3, 32, 32), 10  # D's
# Batch norm asks for two numbers a channel at least, which one record of one pixel would not have.
_COUNTED_RECORDS = 2
# By how much D's code slows a client of so many CPUs down against its own GPU.
_CPUS = np.array([0.1, 0.2, 1.0, 2.0, 4.0])
_SLOW_DOWNS = np.array([250.0, 130.0, 34.0, 20.0, 16.0])
_BYTES = {"mebibyte": 2.0**20, "megabit": 1e6 / 8}


@dataclass(frozen=True)
class ModuleCosts:
    """By module md1 … md_n, and by head of tiers 1 … n − 1. FLOPs are of a record, forward and
    backward.

    Attributes:
        flops: (n,), with those of the gradient in the input, except for md1, whose input is data.
        numbers: (n,) parameters, and running means and variances of batch norm.
        outputs: (n,) numbers of a record that the module gives.
        head_flops, head_numbers: (n − 1,).
        small_flops: FLOPs of the small network that FedGKT's clients have behind md1; NaN where
            that is not counted.
    """

    flops: np.ndarray
    numbers: np.ndarray
    outputs: np.ndarray
    head_flops: np.ndarray
    head_numbers: np.ndarray
    small_flops: float = nan


@dataclass(frozen=True)
class TierCosts:
    """By tier 1 … M, where the client does more the higher it is (D Table 11); all (M,).

    Attributes:
        modules: that the client has.
        client_flops: FLOPs of a record, the auxiliary head's included.
        server_flops: FLOPs of a record.
        record_bytes: that a record sends: its activations and its label.
        model_bytes: bytes of the client's model, one way; or (K, M), of each client.
    """

    modules: np.ndarray
    client_flops: np.ndarray
    server_flops: np.ndarray
    record_bytes: np.ndarray
    model_bytes: np.ndarray

    @property
    def n_tiers(self) -> int:
        """M, the whole model's tier included."""
        return len(self.modules)


def tier_costs(costs: ModuleCosts, n_tiers: int, whole_model: bool = False) -> TierCosts:
    """The last M tiers of all (D Table 11). The `whole_model` is one tier more, beyond D, in which
    the client trains everything, sends nothing but its model, and needs no head."""
    n_cuts = len(costs.head_flops)
    if not 1 <= n_tiers <= n_cuts:
        raise ValueError(f"1 to {n_cuts} tiers, not {n_tiers}")
    return costs_of_cuts(costs, np.arange(n_cuts - n_tiers, n_cuts + whole_model) + 1)


def costs_of_cuts(costs: ModuleCosts, cuts: np.ndarray) -> TierCosts:
    """Of tiers that are cut after these modules (M,); after the last = the whole model."""
    flops, numbers = np.cumsum(costs.flops), np.cumsum(costs.numbers)
    head_flops, head_numbers = (
        np.append(each, 0)[cuts - 1] for each in (costs.head_flops, costs.head_numbers)
    )
    sent = BYTES_PER_NUMBER * costs.outputs[cuts - 1] + LABEL_BYTES
    return TierCosts(
        cuts,
        flops[cuts - 1] + head_flops,
        flops[-1] - flops[cuts - 1],
        np.where(cuts < len(flops), sent, 0.0),
        BYTES_PER_NUMBER * (numbers[cuts - 1] + head_numbers),
    )


def fedavg_costs(costs: ModuleCosts) -> TierCosts:
    """One tier: the client trains the whole model."""
    return costs_of_cuts(costs, np.array([len(costs.flops)]))


def splitfed_costs(costs: ModuleCosts) -> TierCosts:
    """One tier without a head, cut after md2 (D A.5): activations up, their gradients down."""
    client, server = np.split(costs.flops, [SPLITFED_MODULES])
    sent = 2 * BYTES_PER_NUMBER * costs.outputs[SPLITFED_MODULES - 1] + LABEL_BYTES
    model_bytes = BYTES_PER_NUMBER * costs.numbers[:SPLITFED_MODULES].sum()
    return _one_tier(SPLITFED_MODULES, client.sum(), server.sum(), sent, model_bytes)


def fedgkt_costs(costs: ModuleCosts, epochs: int = 1) -> TierCosts:
    """One tier: md1 and a small network at the client, the rest at the server (He et al. 2020). A
    client trains, passes over its records once more for what it sends (activations, labels and
    scores), and is sent scores. No model travels."""
    client = epochs * (costs.flops[0] + costs.small_flops)
    client += _FORWARD_OF_FIRST * costs.flops[0] + _FORWARD * costs.small_flops
    sent = BYTES_PER_NUMBER * (costs.outputs[0] + 2 * costs.outputs[-1]) + LABEL_BYTES
    return _one_tier(1, client, costs.flops[1:].sum(), sent, 0.0)


def _one_tier(*of_tier: float) -> TierCosts:
    return TierCosts(*(np.array([value]) for value in of_tier))


def module_costs(model: SplitModel, small: SplitModel | None = None) -> ModuleCosts:
    """Counted on the shapes of a model without numbers and with all its heads, by torch's own
    counter of convolutions' and products' FLOPs; `small` has FedGKT's small network behind md1.
    """
    # Data ask for no gradient; what a module gives to the next does.
    features = torch.empty((_COUNTED_RECORDS, *model.shape), device="meta")
    flops, outputs, head_flops, small_flops = [], [], [], nan
    for number, module in enumerate(model.modules, start=1):
        count, features = _step_flops(module, features)
        flops.append(count)
        outputs.append(features[0].numel())
        if number <= model.n_tiers:
            head_flops.append(_step_flops(model.heads[str(number)], features)[0])
        if number == 1 and small is not None:
            small_flops = _step_flops(small.heads["1"], features)[0]
    numbers, head_numbers = (
        np.array([count_numbers(each) for each in modules])
        for modules in (model.modules, model.heads.values())
    )
    by_module = np.array(flops), numbers, np.array(outputs)
    return ModuleCosts(*by_module, np.array(head_flops), head_numbers, small_flops)


@cache
def resnet_costs(depth: int, width: int) -> ModuleCosts:
    """Of D's scheme at that depth and width, on D's images."""
    config = ModelConfig.model_validate({"name": "resnet", "depth": depth, "width": width})
    return counted_costs(config, CIFAR_SHAPE, CIFAR_CLASSES)


def counted_costs(config: ModelConfig, shape: Shape, n_classes: int) -> ModuleCosts:
    """Of a configured model, FedGKT's small network included."""
    of_data, cuts = (config, shape, n_classes, None), range(1, SPLIT_MODELS[config.name] + 1)
    return module_costs(
        build_split_model(*of_data, cuts), build_split_model(*of_data, (1,), small=True)
    )


def _step_flops(module: nn.Module, features: Tensor) -> tuple[float, Tensor]:
    """Of a record, forward and backward; and what the module gives, as input of the next."""
    counter = FlopCounterMode(display=False)
    with counter:
        output = module(features)
        output.sum().backward()
    module.zero_grad(set_to_none=True)
    return counter.get_total_flops() / len(features), output.detach().requires_grad_()


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of every client in every tier, all (K, M) float64: T^c of its own part of the model,
    T^s of the server's part, T^com of its activations, labels and model, both ways."""

    client: np.ndarray
    server: np.ndarray
    communication: np.ndarray

    def parallel(self) -> np.ndarray:
        """T of D eq. 5: client and server compute at once, then the link is waited for."""
        return np.maximum(self.client, self.server) + self.communication

    def sequential(self) -> np.ndarray:
        """One after the other, as in SplitFed and FedAvg."""
        return self.client + self.server + self.communication

    def at(self, tiers: np.ndarray) -> Self:
        """Of the n clients in a tier, (n,), by the tiers of all, (K,): 1 … M; -1 = absent."""
        at = np.flatnonzero(tiers > 0), tiers[tiers > 0] - 1
        return type(self)(self.client[at], self.server[at], self.communication[at])


@dataclass(frozen=True)
class Clients:
    """Who takes part in a round, each (K,): records that they hold, CPUs, and bytes a second."""

    records: np.ndarray
    cpus: np.ndarray
    rates: np.ndarray


def clients_of(config: ClockConfig, records: np.ndarray, profiles: np.ndarray) -> Clients:
    """Clients by their places (K,) in the list of profiles."""
    cpus, rates = np.array(config.profiles).T
    return Clients(records, cpus[profiles], rates[profiles] * _BYTES[config.rate_unit])


def round_times(
    costs: TierCosts, clients: Clients, config: ClockConfig, noise: np.ndarray | float = 1.0
) -> RoundTimes:
    """Of one local epoch of every client in every tier; `noise` (K,) multiplies T^c."""
    records, slow = clients.records[:, None], slowness(clients.cpus)[:, None]
    computing = records * costs.client_flops * slow / (config.cpu_gflops * GIGA)
    sent = records * costs.record_bytes + 2 * costs.model_bytes
    return RoundTimes(
        computing * np.reshape(noise, (-1, 1)),
        records * costs.server_flops / (config.server_gflops * GIGA),
        sent / clients.rates[:, None],
    )


def slowness(cpus: np.ndarray) -> np.ndarray:
    """Seconds for what takes one second on one CPU, by numbers of CPUs; between those that were
    measured, on a straight line between their logarithms, and beyond them as one over the CPUs."""
    measured = np.clip(cpus, _CPUS[0], _CPUS[-1])
    relative = np.log(_SLOW_DOWNS / _SLOW_DOWNS[_CPUS == 1.0])
    return np.exp(np.interp(np.log(measured), np.log(_CPUS), relative)) * (measured / cpus)


def draw_profiles(config: ClockConfig, n_clients: int, rounds: int, seed: int) -> np.ndarray:
    """The profile of every client in every round, by its place in the list: (R, K) int64. At the
    start each profile has its share of the clients, in their order; at every switch a share of the
    clients draws one anew, uniformly (D Sec. 4.1)."""
    n_profiles = len(config.profiles)
    present = np.arange(n_clients) * n_profiles // n_clients
    n_switching = round(config.switch_share * n_clients)
    drawn = np.empty((rounds, n_clients), dtype=np.int64)
    for number in range(rounds):
        if number and config.switch_every is not None and number % config.switch_every == 0:
            draws = generator(seed, "profile", number)
            who = draws.choice(n_clients, n_switching, replace=False)
            present[who] = draws.integers(n_profiles, size=n_switching)
        drawn[number] = present
    return drawn


def draw_noise(deviation: float, n_clients: int, rounds: int, seed: int) -> np.ndarray:
    """What every client's computing time is multiplied with in every round: log-normal, (R, K)."""
    if not deviation:
        return np.ones((rounds, n_clients))
    keys = np.ndindex(rounds, n_clients)
    normal = [generator(seed, "clock-noise", *key).standard_normal() for key in keys]
    return np.exp(deviation * np.reshape(normal, (rounds, n_clients)))
