"""The bounds of one run as tables: by round beside what was measured, and by layer."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.convergence.bound import (
    Constants,
    LayerTerms,
    corollary_1,
    largest_step_parameter,
    theorem_1,
    trust_shares,
)
from m2fdp.convergence.descent import RoundNoise, descent_bound
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.calibrated import CalibratedMechanism
from m2fdp.core.privacy.multiplier import nominal_epsilon
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network


def estimate_constants(
    measured: pd.DataFrame,
    mechanism: CalibratedMechanism,
    schedule: Schedule,
    privacy: PrivacyConfig,
    n_parameters: int,
    sampling_rate: float,
) -> Constants:
    """The constants of a run: beta and sigma^2 as estimated along it, the rest as configured.

    Both estimates are the largest values seen, lower bounds on what the assumptions ask for. G is
    the clipping norm, or without one the largest gradient of a device that was seen.

    Args:
        measured: rows of `m2fdp.convergence.measurement.measure_run`.
        sampling_rate: q, the largest over devices.

    Raises:
        InputError: no gradient has changed along the run, so nothing is known of beta.
    """
    smoothness = float(measured["smoothness"].max())
    if not smoothness > 0:  # NaN where no model has moved
        raise InputError(
            "training.rounds",
            int(measured["round"].iloc[-1]),
            "in so many no device's gradient has changed, so beta can't be estimated",
        )
    ledger = mechanism.ledger
    norms = (mechanism.clipping.batch_norm, mechanism.clipping.record_norm)
    clipped = [norm for norm in norms if norm is not None]
    return Constants(
        smoothness=smoothness,
        gradient_norm=clipped[0] if clipped else float(measured["largest_gradient"].max()),
        gradient_variance=float(measured["gradient_variance"].max()),
        n_parameters=n_parameters,
        local_steps=schedule.local_steps,
        sampling_rate=sampling_rate,
        epsilon=nominal_epsilon(ledger, len(ledger.plans), privacy) if mechanism.private else inf,
        delta=privacy.delta,
    )


def bound_table(
    measured: pd.DataFrame,
    terms: LayerTerms,
    constants: Constants,
    noise: RoundNoise,
    schedule: Schedule,
) -> pd.DataFrame:
    """Both bounds after every evaluated round T, beside the means that they bound.

    A mean is over those of w^(1)…w^(T) that were measured.

    Returns:
        `round` (T); `a1, a2, b, bound` of Theorem 1 as printed and `mean_gradient_norm_sq`, the
        plain mean that it bounds; `proven_a1, proven_a2, proven_b, proven_bound` of
        `m2fdp.convergence.descent` and `weighted_gradient_norm_sq`, the mean weighted by step size
        that it bounds; `gradient_norm_sq` and `loss` at w^(T+1).
    """
    at = measured["round"].to_numpy()[1:]
    loss_drop = measured["loss"].iloc[0] - measured["loss"].to_numpy()[1:]
    norms = measured["gradient_norm_sq"].to_numpy()
    step_sizes = np.array([schedule.step_size(t) for t in range(1, at[-1] + 1)])
    # A row's model is where round + 1 starts.
    weights = step_sizes[measured["round"].to_numpy()[:-1]]
    printed = theorem_1(terms, constants, at, loss_drop)
    drops = np.full(len(step_sizes), np.nan)
    drops[at - 1] = loss_drop
    proven = descent_bound(constants, noise, step_sizes, drops)
    return pd.DataFrame(
        {
            "round": at,
            "a1": printed.a1,
            "a2": printed.a2,
            "b": printed.b,
            "bound": printed.total,
            "mean_gradient_norm_sq": np.cumsum(norms[:-1]) / np.arange(1, len(at) + 1),
            "proven_a1": proven.a1[at - 1],
            "proven_a2": proven.a2[at - 1],
            "proven_b": proven.b[at - 1],
            "proven_bound": proven.total[at - 1],
            "weighted_gradient_norm_sq": np.cumsum(weights * norms[:-1]) / np.cumsum(weights),
            "gradient_norm_sq": norms[1:],
            "loss": measured["loss"].to_numpy()[1:],
        }
    )


def layer_table(network: Network, terms: LayerTerms) -> pd.DataFrame:
    """One row a layer l = 1…L: s_l, p_l^min, p_l^max, the weight (1 - p_{l-1}^min)^2, A, B, C and
    the summand of eq. 19 (b); s_L is missing, as devices have no children.
    """
    depth = network.tree.depth
    shares = trust_shares(network.tree, network.trust)
    return pd.DataFrame(
        {
            "layer": range(1, depth + 1),
            "fanout": pd.array(
                [*(network.smallest_fanout(layer) for layer in range(1, depth)), None], "Int64"
            ),
            "p_min": shares.smallest[1:],
            "p_max": shares.largest[1:],
            "weight": terms.weights,
            "A": [float(a) for a in terms.a],
            "B": [float(b) for b in terms.b],
            "C": [float(c) for c in terms.c],
            "summand": [float(summand) for summand in terms.by_layer],
        }
    )


def bound_summary(
    measured: pd.DataFrame,
    constants: Constants,
    noise: RoundNoise,
    mechanism: CalibratedMechanism,
    network: Network,
    schedule: Schedule,
    alpha: float,
) -> dict[str, Any]:
    """Constants and where they come from, whether the assumptions hold, Corollary 1; for JSON."""
    depth = network.tree.depth
    rounds = int(measured["round"].iloc[-1])
    allowed = largest_step_parameter(constants.smoothness, schedule.local_steps, rounds)
    largest = float(measured["largest_gradient"].max())
    factor = float(constants.noise_factor(depth))
    own_noise, passed_on = corollary_1(
        trust_shares(network.tree, network.trust),
        [network.smallest_fanout(layer) for layer in range(1, depth)],
        [alpha] * depth,
    )
    return {
        "constants": asdict(constants),
        "estimated": ["smoothness", "gradient_variance"]
        + ([] if mechanism.private else ["gradient_norm"]),
        "step_size": {
            "law": schedule.step_size_law,
            "gamma": schedule.learning_rate,
            "largest_gamma": allowed,
            "within_theorem_1": schedule.step_size_law == "inverse_sqrt"
            and schedule.learning_rate <= allowed,
        },
        "gradients": {
            "largest_of_a_device": largest,
            "within_gradient_norm": largest <= constants.gradient_norm,
        },
        "noise_of_b": f"Prop. 1 at alpha = {alpha:g}" if mechanism.private else "none",
        "noise_of_proven_b": asdict(noise),
        "corollary_1": {"own": factor * own_noise, "passed_on": factor * passed_on},
    }


def broken_assumptions(summary: dict[str, Any]) -> list[str]:
    """What a reader of the bounds must know, a sentence each."""
    sentences = []
    step_size, gradients = summary["step_size"], summary["gradients"]
    if not step_size["within_theorem_1"]:
        sentences.append(
            "Theorem 1 is stated for steps of gamma / sqrt(t + 1) with gamma <= "
            f"{step_size['largest_gamma']:.3g}; this run takes {step_size['gamma']:g} "
            f"({step_size['law']})"
        )
    if not gradients["within_gradient_norm"]:
        sentences.append(
            "both bounds assume that clipping changes no gradient; devices' gradients reach "
            f"{gradients['largest_of_a_device']:.3g} against "
            f"G = {summary['constants']['gradient_norm']:g}"
        )
    return sentences
