"""What the convergence bounds speak of, measured along a run: losses, gradients, smoothness.

All of it comes from the devices' raw records: a diagnostic of the simulation, never a release.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from m2fdp.convergence.local_gradients import LocalGradients, local_gradients
from m2fdp.convergence.smoothness import Smoothness, observe, probe
from m2fdp.core.engine.process import State, run_rounds
from m2fdp.core.engine.simulation import Simulation, SimulationProcess
from m2fdp.core.schedule.rounds import RoundPlan


def measure_run(
    process: SimulationProcess, rounds: Sequence[RoundPlan], evaluate_every: int
) -> pd.DataFrame:
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
    smoothness = first_look(simulation, start.weights, local.gradients)
    rows = [_row(simulation, start, local, smoothness)]
    for state in run_rounds(process, rounds, start):
        if state.round % evaluate_every == 0 or state.round == len(rounds):
            local = gradients_at(simulation, state.weights)
            smoothness = observe(smoothness, state.weights, local.gradients)
            rows.append(_row(simulation, state, local, smoothness))
    return pd.DataFrame(rows)


def gradients_at(simulation: Simulation, weights: torch.Tensor) -> LocalGradients:
    """Every device's loss and gradient at the model (M,)."""
    shards = simulation.shards
    return local_gradients(simulation.model, weights, shards.features, shards.labels, shards.sizes)


def first_look(
    simulation: Simulation, weights: torch.Tensor, gradients: torch.Tensor
) -> Smoothness:
    """What is seen of beta before the first round: at the model (M,), and a unit away from it.

    Args:
        gradients: the devices' gradients there, (N_L, M).
    """
    second = probe(weights, gradients)
    state = observe(Smoothness(), second, _gradients_at_each(simulation, second))
    return observe(state, weights, gradients)


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
    simulation: Simulation, state: State, local: LocalGradients, smoothness: Smoothness
) -> dict[str, float | None]:
    shares = np.ones(1)
    network = simulation.networks[0]
    for weights, parents in zip(network.objective_weights, network.tree.parents, strict=True):
        shares = weights * shares[parents]
    rho = torch.as_tensor(shares, dtype=torch.float64, device=local.gradients.device)
    gradients = local.gradients.double()
    return {
        "round": state.round,
        "loss": float(rho.cpu() @ local.losses),
        "gradient_norm_sq": float((rho @ gradients).square().sum()),
        "smoothness": smoothness.beta,
        "largest_gradient": float(gradients.norm(dim=1).max()),
        "gradient_variance": float(_minibatch_variance(simulation, local).max()),
    }


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
