"""What the controller needs."""

from collections.abc import Iterator
from dataclasses import replace

from m2fdp.core.algorithms import ALGORITHMS, Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.checks import never_due
from m2fdp.core.experiment.facts import Fact, Feature
from m2fdp.core.experiment.request import Request


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line for each thing that is allowed under a controller and is seldom what was meant."""
    lines: list[str] = []
    control = config.control
    if not control.enabled:
        return lines
    if control.gap == "papers" and control.step_size_factor == 1.0:
        steps = control.tau or config.training.rounds * config.training.local_steps
        lines.append(
            "control.step_size_factor = 1 is J's own: steps of at most 1/(tau beta), too small to "
            f"get anywhere in tau steps; try {steps} (steps of 1/beta) and more"
        )
    if control.smoothness is None:
        lines.append(
            "control.smoothness = null: beta is what no record passes, and steps of at most 1/beta "
            "are far smaller than clipped gradients allow; a number that held-out records have "
            "found trains faster"
        )
    return lines + never_due(replace(plan.schedule, local_steps=control.max_local_steps))


def _is_controlled(run: Request) -> bool:
    return run.config.control.enabled


_ABLE = " or ".join(name for name, each in ALGORITHMS.items() if each.controllable)
# fmt: off
FACTS = (
    replace(a.KNOWN_ROUNDS, key="control.enabled", remedy="false",
        holds=lambda run: not _is_controlled(run)),
)
_CONTROLLABLE = Fact("an algorithm that it belongs to, not {algorithm}", "algorithm", _ABLE,
    lambda run: run.algorithm.controllable)
_TWO_TIERS = Fact("edge servers whose participation it can choose", "topology.fanouts",
    "two numbers or more", lambda run: run.network.tree.depth >= 2)
# fmt: on


def _of_control(run: Request) -> Iterator[InputError]:
    """Local aggregations at layer 1, and as many steps as the rounds have room for."""
    control, schedule = run.config.control, run.plan.schedule
    for layer in schedule.local_aggregation:
        if layer > 1:
            text = "is a layer that the controller does not aggregate at; valid: 1"
            yield InputError("training.local_aggregation", layer, text)
    room = schedule.rounds * control.max_local_steps
    if control.gap == "mechanism" and control.tau is not None and control.tau > room:
        text = (
            f"is more than training.rounds = {schedule.rounds} rounds of control.max_local_steps = "
            f"{control.max_local_steps} have room for"
        )
        yield InputError("control.tau", control.tau, text)


# fmt: off
FEATURES = (
    Feature("control.enabled", _is_controlled, (_CONTROLLABLE, _TWO_TIERS), "false",
        "control.enabled"),
    Feature("the controller (control.enabled)", _is_controlled,
        (a.NOT_DRAWN, a.AVERAGE, a.CLIPPED_STEPS, a.FIXED_SERVERS, a.NO_MULTIPLIER, a.EQUAL_WEIGHTS,
         a.NOT_BY_CHANCE, a.PLAIN_MEANS), values=_of_control),
    Feature("control.gap: papers",
        lambda run: _is_controlled(run) and run.config.control.gap == "papers",
        (a.SINGLE_MESSAGES,), "gap: mechanism"),
)
