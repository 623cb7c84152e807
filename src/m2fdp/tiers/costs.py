"""What a tier of a split model's modules costs a client and a server."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

# float32.
BYTES_PER_NUMBER = 4
# D A.5 splits the global model after md2 for SplitFed.
SPLITFED_MODULES = 2
# md1 has no gradient in its input, so that a forward pass is half of its FLOPs; a third of others'.
_FORWARD_OF_FIRST, _FORWARD = 1 / 2, 1 / 3


@dataclass(frozen=True)
class ModuleCosts:
    """By module md1 … md_n, and by head of tiers 1 … n − 1.

    Attributes:
        name: the model's name.
        flops: (n,) of a record, forward and backward; the gradient in the input too, except for
            md1, whose input is data.
        parameters: (n,) numbers that are trained.
        buffers: (n,) numbers that batch norm keeps: running means and variances.
        outputs: (n,) numbers of a record that the module gives.
        head_flops: (n − 1,) of a record, forward and backward.
        head_parameters: (n − 1,).
        small_flops: those of a record, forward and backward, of the small network that FedGKT's
            clients have behind md1; NaN where that is not counted.
    """

    name: str
    flops: np.ndarray
    parameters: np.ndarray
    buffers: np.ndarray
    outputs: np.ndarray
    head_flops: np.ndarray
    head_parameters: np.ndarray
    small_flops: float = nan


@dataclass(frozen=True)
class TierCosts:
    """By tier 1 … M, where the client does more the higher it is (D Table 11).

    Attributes:
        modules: (M,) modules that the client has.
        client_flops: (M,) of a record, the auxiliary head's included.
        server_flops: (M,) of a record.
        record_bytes: (M,) that a record sends: its activations and its label.
        model_bytes: (M,) of the client's model, one way.
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


def tier_costs(
    costs: ModuleCosts, n_tiers: int, label_bytes: float, whole_model: bool = False
) -> TierCosts:
    """The last M tiers of all (D Table 11).

    Args:
        n_tiers: M.
        label_bytes: bytes of a record's label, sent with its activations.
        whole_model: one tier more, beyond D, in which the client trains everything, sends
            nothing but its model, and needs no head.

    Raises:
        ValueError: more tiers than the model has.
    """
    n_cuts = len(costs.head_flops)
    if not 1 <= n_tiers <= n_cuts:
        raise ValueError(f"1 to {n_cuts} tiers, not {n_tiers}")
    cuts = np.arange(n_cuts - n_tiers + 1, n_cuts + 1)
    return costs_of_cuts(costs, cuts, label_bytes, whole_model)


def costs_of_cuts(
    costs: ModuleCosts, cuts: np.ndarray, label_bytes: float, whole_model: bool = False
) -> TierCosts:
    """Of tiers that are cut after these modules (M,); see `tier_costs`."""
    if whole_model:
        cuts = np.append(cuts, len(costs.flops))
    split = cuts < len(costs.flops)
    flops, numbers = np.cumsum(costs.flops), np.cumsum(costs.parameters + costs.buffers)
    head_flops, head_parameters = (
        np.append(each, 0)[cuts - 1] for each in (costs.head_flops, costs.head_parameters)
    )
    return TierCosts(
        cuts,
        flops[cuts - 1] + head_flops,
        flops[-1] - flops[cuts - 1],
        np.where(split, BYTES_PER_NUMBER * costs.outputs[cuts - 1] + label_bytes, 0.0),
        BYTES_PER_NUMBER * (numbers[cuts - 1] + head_parameters),
    )


def fedavg_costs(costs: ModuleCosts) -> TierCosts:
    """One tier: the client trains the whole model."""
    numbers = (costs.parameters + costs.buffers).sum()
    return _one_tier(len(costs.flops), costs.flops.sum(), 0.0, 0.0, BYTES_PER_NUMBER * numbers)


def splitfed_costs(costs: ModuleCosts, label_bytes: float) -> TierCosts:
    """One tier without a head, cut after md2 (D A.5): activations up, their gradients down."""
    client, server = np.split(costs.flops, [SPLITFED_MODULES])
    sent = 2 * BYTES_PER_NUMBER * costs.outputs[SPLITFED_MODULES - 1] + label_bytes
    numbers = (costs.parameters + costs.buffers)[:SPLITFED_MODULES].sum()
    model_bytes = BYTES_PER_NUMBER * numbers
    return _one_tier(SPLITFED_MODULES, client.sum(), server.sum(), sent, model_bytes)


def fedgkt_costs(costs: ModuleCosts, label_bytes: float, epochs: int = 1) -> TierCosts:
    """One tier: md1 and a small network at the client, the rest at the server (He et al. 2020).

    A client trains, then passes over its records once more for what it sends: activations, labels
    and scores, and is sent scores. No model travels.

    Args:
        epochs: passes of a client over its records in a round.
    """
    client = costs.flops[0] + costs.small_flops
    forward = _FORWARD_OF_FIRST * costs.flops[0] + _FORWARD * costs.small_flops
    numbers = costs.outputs[0] + 2 * costs.outputs[-1]
    return _one_tier(
        1,
        epochs * client + forward,
        costs.flops[1:].sum(),
        BYTES_PER_NUMBER * numbers + label_bytes,
        0.0,
    )


def _one_tier(modules: int, *of_tier: float) -> TierCosts:
    return TierCosts(np.array([modules]), *(np.array([value]) for value in of_tier))
