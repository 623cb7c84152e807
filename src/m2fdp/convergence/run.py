"""A run whose steps noise shortens, and whose convergence is bounded."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.convergence.bound import (
    Constants,
    LayerTerms,
    corollary_1,
    largest_step_parameter,
    network_terms,
    setting_of,
    theorem_1,
)
from m2fdp.convergence.descent import (
    RoundNoise,
    accumulated_noise,
    descent_bound,
    round_noise,
    shortened,
)
from m2fdp.convergence.facts import EQUAL_ROUNDS, check_bound
from m2fdp.convergence.measurement import measure_run
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.engine.process import Simulation
from m2fdp.core.engine.rules import adding
from m2fdp.core.engine.training import FixedRounds
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Paced
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.experiment.facts import refuse
from m2fdp.core.experiment.request import Request
from m2fdp.core.privacy.calibration import CalibratedMechanism, nominal_epsilon
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.core.topology.network import Network
from m2fdp.given.modules import check_one_by_one


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
    """One row a layer l = 1…L: fan-out s_l, trust shares, weight (1 - p_{l-1}^min)^2, A, B and C.

    The last column is the summand of eq. 19 (b). s_L is missing: devices have no children."""
    shares, fanouts = setting_of(network)
    return pd.DataFrame(
        {
            "layer": range(1, network.tree.depth + 1),
            "fanout": pd.array([*fanouts, None], "Int64"),
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
    own_noise, passed_on = corollary_1(*setting_of(network), [alpha] * depth)
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


@dataclass(frozen=True, eq=False)
class ConvergenceBounds:
    """The convergence bounds of a run, beside what was measured along it.

    Attributes:
        by_round: table of `m2fdp.convergence.run.bound_table`.
        by_layer: table of `m2fdp.convergence.run.layer_table`.
        summary: constants, where they come from, and whether the assumptions hold; for JSON.
        warnings: what a reader must know of the assumptions, a sentence each.
    """

    by_round: pd.DataFrame
    by_layer: pd.DataFrame
    summary: Mapping[str, Any]
    warnings: tuple[str, ...]


class Bounded(PlainExperiment):
    """A run, the convergence bounds of one, and steps short enough for little noise in the last
    model (`training.accumulated_noise`)."""

    @cached_property
    def accumulated_noise(self) -> float | None:
        """What noise alone would make of a parameter in steps as scheduled; None where
        `training.accumulated_noise` does not ask, or nothing is noised."""
        rule = adding(self.plan.rules.server)
        if self.config.training.accumulated_noise is None or not self.plan.private or rule is None:
            return None
        mechanisms, rounds = self.calibration.mechanisms, self.calibration.affordable_rounds
        return accumulated_noise(self.scheduled, mechanisms, rule.carried(rounds))

    @cached_property
    def schedule(self) -> Schedule:
        """The plan's, its steps as short as `training.accumulated_noise` asks."""
        schedule, most = super().schedule, self.config.training.accumulated_noise
        if most is None or self.accumulated_noise is None:
            return schedule
        return shortened(schedule, self.accumulated_noise, most)

    def paced(self, simulation: Simulation) -> Paced:
        costs, policy = super().paced(simulation)
        if self.accumulated_noise is not None:
            policy = FixedRounds(self.run_plan.rounds, told=True)
        return costs, policy

    def measure(self) -> pd.DataFrame:
        """Train, and measure loss, gradients and curvature along the run; see
        `m2fdp.convergence.measurement.measure_run`.

        Raises:
            InputError: the rounds are a controller's.
        """
        refuse(EQUAL_ROUNDS, Request(self.config, self.plan))
        model = self.model
        if model.is_own:
            check_one_by_one(model.name, model.module, self.input_shape, "what is measured")
        rounds = self.run_plan.rounds[: self.calibration.affordable_rounds]
        return measure_run(self.process(), rounds, self.config.training.evaluate_every)

    def bound(self, measured: pd.DataFrame | None = None) -> ConvergenceBounds:
        """The convergence bounds beside what is measured.

        Args:
            measured: table of `measure`, which is called where it is not given.

        Raises:
            InputError: a fact that `BOUND` needs does not hold, or no gradient has changed along
                the run, so that nothing is known of beta.
        """
        privacy, network, schedule = self.config.privacy, self.network, self.schedule
        check_bound(self.config, self.plan)
        measured = self.measure() if measured is None else measured
        mechanism, n_parameters = self.calibration.mechanism, self.model.n_parameters
        rate = float(self.sampling_rates.max())
        constants = estimate_constants(measured, mechanism, schedule, privacy, n_parameters, rate)
        noise = round_noise(network, mechanism.lock_step, mechanism.noise, schedule, n_parameters)
        terms = network_terms(network, [privacy.alpha] * network.tree.depth)
        of_run = mechanism, network, schedule, privacy.alpha
        summary = bound_summary(measured, constants, noise, *of_run)
        return ConvergenceBounds(
            bound_table(measured, terms, constants, noise, schedule),
            layer_table(network, terms),
            summary,
            tuple(broken_assumptions(summary)),
        )
