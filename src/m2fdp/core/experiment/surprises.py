"""What is allowed in a configuration and is seldom what was meant."""

from __future__ import annotations

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.experiment.facts.facts import KNOWN_ROUNDS
from m2fdp.core.experiment.facts.rule import told
from m2fdp.core.experiment.request import Request
from m2fdp.core.rooms import brought
from m2fdp.core.schedule.schedule import Schedule


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line for each thing that is allowed and is seldom what was meant."""
    lines = [line for of_room in brought("surprises") for line in of_room(config, plan)]
    if told(KNOWN_ROUNDS).holds(Request(config, plan)):
        lines += never_due(plan.schedule)
    return lines


def never_due(schedule: Schedule) -> list[str]:
    """A line for each local aggregation that never comes."""
    if schedule.local_steps == 1:  # no round of one step has any, whatever an environment says
        return []
    due = {schedule.aggregation_layer(step) for step in range(1, schedule.local_steps)}
    return [
        f"training.local_aggregation.{layer} = {schedule.local_aggregation[layer]}: never comes, "
        f"as a round has {schedule.local_steps} local steps and aggregations nearer the cloud come "
        "first; use a smaller number, or null"
        for layer in sorted(schedule.local_aggregation.keys() - due)
    ]
