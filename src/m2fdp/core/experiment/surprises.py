"""What is allowed in a configuration and is seldom what was meant."""

from __future__ import annotations

from dataclasses import replace

from m2fdp.core.algorithms import Plan, get_algorithm
from m2fdp.core.config import Config
from m2fdp.tiers.printed import TABLE_TIERS

_LARGE_FOR_ADAM = 0.05


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line for each thing that is allowed and is seldom what was meant."""
    schedule, lines = plan.schedule, _in_tiers(config)
    if plan.private and config.secure_aggregation.layers and not plan.network.sums.shared:
        lines.append(
            "secure_aggregation.noise = separate: every sender's noise is enough by itself, and "
            "sums only lower epsilon; shared meets the same target with less noise"
        )
    if config.control.enabled:
        schedule = replace(schedule, local_steps=config.control.max_local_steps)
        if config.control.gap == "papers" and config.control.step_size_factor == 1.0:
            steps = config.control.tau or config.training.rounds * config.training.local_steps
            lines.append(
                "control.step_size_factor = 1 is J's own: steps of at most 1/(tau beta), too small "
                f"to get anywhere in tau steps; try {steps} (steps of 1/beta) and more"
            )
        if config.control.smoothness is None:
            lines.append(
                "control.smoothness = null: beta is what no record passes, and steps of at most "
                "1/beta are far smaller than clipped gradients allow; a number that held-out "
                "records have found trains faster"
            )
    if schedule.local_steps == 1:  # no round of one step has any, whatever an environment says
        return lines
    due = {schedule.aggregation_layer(step) for step in range(1, schedule.local_steps)}
    for layer in sorted(schedule.local_aggregation.keys() - due):
        lines.append(
            f"training.local_aggregation.{layer} = {schedule.local_aggregation[layer]}: never "
            f"comes, as a round has {schedule.local_steps} local steps and aggregations nearer "
            "the cloud come first; use a smaller number, or null"
        )
    return lines


def _in_tiers(config: Config) -> list[str]:
    """A line for each thing that is allowed in tiers and is seldom what was meant."""
    way, training, tiering = get_algorithm(config.algorithm).tiers, config.training, config.tiering
    lines: list[str] = []
    if way is None:
        return lines
    if training.optimizer == "adam" and training.learning_rate > _LARGE_FOR_ADAM:
        lines.append(
            f"training.learning_rate = {training.learning_rate:g} is far above D's 0.001: steps of "
            "Adam are of that length whatever the gradient (training.optimizer)"
        )
    believed = tiering.profile == "paper" and tiering.schedule == "dynamic"
    if way.tiered and believed and tiering.tiers > TABLE_TIERS:
        lines.append(
            f"tiering.profile = paper: D's Table 2 has {TABLE_TIERS} tiers, and the times of the "
            f"lowest of tiering.tiers = {tiering.tiers} are a guess of this code's; use "
            f"{TABLE_TIERS}, or profile: clock"
        )
    return lines
