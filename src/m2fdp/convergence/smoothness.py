"""The smoothness beta of the devices' losses, estimated while they train (J's reference [8]).

beta is the largest ||grad F_i(w) - grad F_i(w')|| / ||w - w'|| that has been seen over devices i
and pairs of models: a lower bound on the true constant that grows with what is seen. Gradients of
raw records are a release: who uses them must count it or say that epsilon is conditional on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Smoothness:
    """What has been seen so far.

    Attributes:
        beta: the largest ratio, or None before two different models have been seen.
        weights: the models of the last look, (N_L, M), or (1, M) where all devices share one.
        gradients: the gradients of F_i there, (N_L, M).
    """

    beta: float | None = None
    weights: Tensor | None = None
    gradients: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name; `from_tensors` reads it."""
        named = {"weights": self.weights, "gradients": self.gradients}
        if self.beta is not None:
            named["beta"] = torch.tensor(self.beta, dtype=torch.float64)
        return {name: tensor for name, tensor in named.items() if tensor is not None}


def from_tensors(tensors: Mapping[str, Tensor]) -> Smoothness:
    """What `Smoothness.tensors` has given."""
    beta = tensors.get("beta")
    return Smoothness(
        None if beta is None else float(beta), tensors.get("weights"), tensors.get("gradients")
    )


def observe(state: Smoothness, weights: Tensor, gradients: Tensor) -> Smoothness:
    """The state after one more look; devices whose model has not moved say nothing.

    Args:
        weights: (N_L, M), or (M,) for one model of all devices.
        gradients: the gradients of F_i at these weights, (N_L, M).
    """
    weights = torch.atleast_2d(weights)
    after = replace(state, weights=weights, gradients=gradients)
    if state.weights is None or state.gradients is None:
        return after
    changes = (gradients - state.gradients).norm(dim=1)
    distances = (weights - state.weights).norm(dim=1).expand_as(changes)
    moved = distances > 0
    if not moved.any():
        return after
    ratio = float((changes[moved] / distances[moved]).max())
    return replace(after, beta=max(ratio, state.beta or 0.0))


def probe(weights: Tensor, gradients: Tensor) -> Tensor:
    """A second model for each device, one unit down its own gradient: (N_L, M).

    Before the first round there is one model only, and a step size is due. Random directions
    would miss the curvature that gradients point along.
    """
    lengths = gradients.norm(dim=1, keepdim=True)
    return weights - gradients / lengths.clamp_min(torch.finfo(gradients.dtype).tiny)
