"""What the convergence bounds speak of, measured along a run: losses, gradients, smoothness.

All of it comes from the devices' raw records: a diagnostic of the simulation, never a release.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.core.engine.process import Process, Simulation, State
from m2fdp.core.models.registry import Model
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.topology.network import Network

_GRADIENTS_AT_A_TIME = 256


@dataclass(frozen=True, eq=False)
class LocalGradients:
    """The devices' losses and unclipped gradients at one model, over whole shards.

    Attributes:
        losses: float64 (N_L,), F_j.
        gradients: (N_L, M), grad F_j.
        mean_squares: float64 (N_L,), the mean over device j's records of the squared norm of
            the record's own gradient.
    """

    losses: Tensor
    gradients: Tensor
    mean_squares: Tensor


def local_gradients(
    model: Model, weights: Tensor, features: Tensor, labels: Tensor, sizes: np.ndarray
) -> LocalGradients:
    """Evaluate every F_j (J eq. 5) and its gradient at the parameters (M,).

    Args:
        features: (R, C, H, W), all training records' in device order.
        labels: labels of the same records, (R,).
        sizes: int64 (N_L,), D_j.
    """
    losses = torch.zeros(len(sizes), dtype=torch.float64)
    gradients = weights.new_zeros(len(sizes), len(weights))
    mean_squares = torch.zeros(len(sizes), dtype=torch.float64)
    start = 0
    for device, size in enumerate(sizes.tolist()):
        for part in torch.arange(start, start + size).split(_GRADIENTS_AT_A_TIME):
            scores = model.scores(weights, features[part]).detach().requires_grad_()
            values = model.loss(scores, labels[part])
            (errors,) = torch.autograd.grad(values.sum(), scores)
            total, squares = _back_propagated(model, weights, features[part], errors)
            losses[device] += values.double().sum().item() / size
            gradients[device] += total / size
            mean_squares[device] += squares.double().sum().item() / size
        start += size
    return LocalGradients(losses, gradients, mean_squares)


def _back_propagated(
    model: Model, weights: Tensor, features: Tensor, errors: Tensor
) -> tuple[Tensor, Tensor]:
    """The sum (M,) of the records' gradients and their squared norms (B,)."""
    if model.linear:
        flat = features.flatten(1)
        return (errors.T @ flat).flatten(), errors.square().sum(1) * flat.square().sum(1)

    def product(vector: Tensor, image: Tensor, error: Tensor) -> Tensor:
        return model.scores(vector, image[None]).flatten() @ error.flatten()

    per_record = torch.func.vmap(torch.func.grad(product), in_dims=(None, 0, 0))
    gradients = per_record(weights, features, errors)
    return gradients.sum(dim=0), gradients.square().sum(dim=1)


# What is seen of beta: the largest `beta` so far, float64, if two different models have been seen;
# of the last look the models `weights` (N_L, M), or (1, M) where all devices share one, and the
# `gradients` of F_i there, (N_L, M).
Looks = Mapping[str, Tensor]


def observe(seen: Looks, weights: Tensor, gradients: Tensor) -> dict[str, Tensor]:
    """What is seen of beta after one more look; devices whose model has not moved say nothing.

    It is the largest ||grad F_i(w) - grad F_i(w')|| / ||w - w'|| over devices and pairs of models
    (J's reference [8]): a lower bound on the true constant.

    Args:
        weights: (N_L, M), or (M,) for one model of all devices.
        gradients: the gradients of F_i at these weights, (N_L, M).
    """
    weights = torch.atleast_2d(weights)
    after = {**seen, "weights": weights, "gradients": gradients}
    if not seen:
        return after
    changes = (gradients - seen["gradients"]).norm(dim=1)
    distances = (weights - seen["weights"]).norm(dim=1).expand_as(changes)
    moved = distances > 0
    if moved.any():
        ratio = float((changes[moved] / distances[moved]).max())
        after["beta"] = torch.tensor(max(ratio, beta_of(seen) or 0.0), dtype=torch.float64)
    return after


def beta_of(seen: Looks) -> float | None:
    """None before two different models have been seen."""
    return float(seen["beta"]) if "beta" in seen else None


def probe(weights: Tensor, gradients: Tensor) -> Tensor:
    """A second model for each device, one unit down its own gradient: (N_L, M). Random directions
    would miss the curvature that gradients point along.
    """
    lengths = gradients.norm(dim=1, keepdim=True)
    return weights - gradients / lengths.clamp_min(torch.finfo(gradients.dtype).tiny)


def measure_run(process: Process, rounds: Sequence[RoundPlan], evaluate_every: int) -> pd.DataFrame:
    """Train, and measure the objective F at w^(1) and after every so many rounds and the last.

    F weights the devices uniformly along the tree (J Sec. II-C), whoever takes part.

    Returns:
        One row a measured model: `round` (those finished, so w^(round+1)), `loss` (F),
        `gradient_norm_sq` (||grad F||^2), `smoothness` (the estimate of beta so far),
        `largest_gradient` (max ||grad F_j||), `gradient_variance` (sigma^2 of J Assumption 1, of
        the minibatches that the run draws, largest over devices).
    """
    simulation, start = process.simulation, process.start()
    local = gradients_at(simulation, start.weights)
    seen = first_look(simulation, start.weights, local.gradients)
    rows = [_row(simulation, start, local, seen)]
    for state in run_rounds(process, rounds, start):
        if state.round % evaluate_every == 0 or state.round == len(rounds):
            local = gradients_at(simulation, state.weights)
            seen = observe(seen, state.weights, local.gradients)
            rows.append(_row(simulation, state, local, seen))
    return pd.DataFrame(rows)


def gradients_at(simulation: Simulation, weights: torch.Tensor) -> LocalGradients:
    """Every device's loss and gradient at the model (M,)."""
    shards = simulation.shards
    return local_gradients(simulation.model, weights, shards.features, shards.labels, shards.sizes)


def first_look(simulation: Simulation, weights: Tensor, gradients: Tensor) -> dict[str, Tensor]:
    """What is seen of beta before the first round: at the model (M,), where the devices' gradients
    are (N_L, M), and a unit away from it."""
    second = probe(weights, gradients)
    seen = observe({}, second, _gradients_at_each(simulation, second))
    return observe(seen, weights, gradients)


def _gradients_at_each(simulation: Simulation, weights: torch.Tensor) -> torch.Tensor:
    """grad F_j at device j's own parameters, row j of weights (N_L, M)."""
    shards = simulation.shards
    features = shards.features.split(shards.sizes.tolist())
    labels = shards.labels.split(shards.sizes.tolist())
    return torch.cat(
        [
            local_gradients(
                simulation.model, weights[j], features[j], labels[j], shards.sizes[j : j + 1]
            ).gradients
            for j in range(len(weights))
        ]
    )


def _row(
    simulation: Simulation, state: State, local: LocalGradients, seen: Looks
) -> dict[str, float | None]:
    shares = np.ones(1)
    network = simulation.networks[0]
    for weights, parents in zip(objective_weights(network), network.tree.parents, strict=True):
        shares = weights * shares[parents]
    rho = torch.as_tensor(shares, dtype=torch.float64, device=local.gradients.device)
    gradients = local.gradients.double()
    return {
        "round": state.round,
        "loss": float(rho.cpu() @ local.losses),
        "gradient_norm_sq": float((rho @ gradients).square().sum()),
        "smoothness": beta_of(seen),
        "largest_gradient": float(gradients.norm(dim=1).max()),
        "gradient_variance": float(_minibatch_variance(simulation, local).max()),
    }


def objective_weights(network: Network) -> tuple[np.ndarray, ...]:
    """rho with every device there: the weights of the losses that are minimised."""
    uniform = network.tree.uniform_weights
    if network.participation is not None:
        return (*uniform[:-1], network.participation.of_all(network.tree.parents[-1]))
    return uniform if network.rho is None else network.rho


def _minibatch_variance(simulation: Simulation, local: LocalGradients) -> np.ndarray:
    """E||g_j - grad F_j||^2 of a Poisson-sampled minibatch, before clipping: float64 (N_L,).

    With the fixed divisor B_j = q_j D_j every record enters by itself, so the variance is
    (1 - q_j)/B_j times the mean squared norm of a record's gradient. With the drawn size as the
    divisor it is about the same about the mean, with B_j for the size that is drawn.
    """
    shards = simulation.shards
    spread = local.mean_squares.numpy()
    if simulation.mechanisms[0].clipping.divide_by == "drawn":
        spread = spread - local.gradients.double().square().sum(dim=1).cpu().numpy()
    return (1 - shards.rates) / (shards.rates * shards.sizes) * np.maximum(spread, 0.0)


def run_rounds(
    process: Process, plans: Sequence[RoundPlan], state: State | None = None
) -> Iterator[State]:
    """The states after the planned rounds t = 1…T that are left, from a state or the start."""
    state = process.start() if state is None else state
    for plan in plans[state.round :]:
        state = process.round(state, plan)
        yield state
