"""When what happens: rounds, local steps, local aggregations and step sizes (J Sec. III-A)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from numbers import Integral
from typing import Literal, get_args

from m2fdp.core.config import TrainingConfig
from m2fdp.core.errors import InputError
from m2fdp.core.schedule.rounds import Center, RoundPlan

Law = Literal["constant", "inverse_sqrt"]


@dataclass(frozen=True)
class Schedule:
    """The time scales of one run; proximal term and centre are of every round's plan."""

    rounds: int  # T
    local_steps: int  # K
    local_aggregation: Mapping[int, int]  # {layer l: up to l every so many local steps}
    learning_rate: float  # gamma
    step_size_law: Law
    proximal: float = 0.0
    center: Center = "received"

    def step_size(self, round_: int) -> float:
        """eta^t: gamma, or gamma / sqrt(t + 1) (J Thm 1), for t = 1…T."""
        if self.step_size_law == "constant":
            return self.learning_rate
        return self.learning_rate / sqrt(round_ + 1)

    def layers(self) -> tuple[int | None, ...]:
        """For local step k = 1…K the layer up to which models travel after it, or None."""
        return tuple(self.aggregation_layer(step) for step in range(1, self.local_steps + 1))

    def round_plans(self) -> tuple[RoundPlan, ...]:
        """The plans of rounds t = 1…T."""
        layers = self.layers()
        return tuple(
            RoundPlan(layers, self.step_size(t), proximal=self.proximal, center=self.center)
            for t in range(1, self.rounds + 1)
        )

    def aggregation_layer(self, step: int) -> int | None:
        """The layer up to which models travel after local step k = 1…K; None = no aggregation.

        The last step is the global aggregation (layer 0). Of several layers that are due, the
        one nearest the cloud wins, so that the sets K_l of J Alg. 1 are disjoint.
        """
        if step == self.local_steps:
            return 0
        layers = [layer for layer, every in self.local_aggregation.items() if step % every == 0]
        return min(layers, default=None)


def build_schedule(config: TrainingConfig, depth: int) -> Schedule:
    """The configured schedule for a tree of the given depth L."""
    schedule = Schedule(
        config.rounds,
        config.local_steps,
        dict(config.local_aggregation),
        config.learning_rate,
        config.step_size,
        config.proximal,
        config.proximal_center,
    )
    check_schedule(
        schedule, depth, lambda name, value, problem: InputError(f"training.{name}", value, problem)
    )
    return schedule


def check_schedule(
    schedule: Schedule, depth: int, refuse: Callable[[str, object, str], InputError]
) -> None:
    """Refuse a schedule that no tree of the given depth L can run, whoever made it.

    Args:
        refuse: makes an error of an attribute's name, its value and what is wrong with it.

    Raises:
        InputError: steps or rounds that are no counts, a local aggregation at a layer that has no
            servers, or numbers that are none.
    """
    for layer, every in schedule.local_aggregation.items():
        if not (_is_whole(layer) and 1 <= layer <= depth - 1):
            valid = f"1 to {depth - 1}" if depth > 1 else "none (null): this tree is a star"
            raise refuse(
                "local_aggregation",
                layer,
                f"is no layer of servers below the cloud; valid layers: {valid}",
            )
        if not (_is_whole(every) and every >= 1):
            raise refuse("local_aggregation", every, "is no number of local steps; valid: 1, 2, …")
    for name in ("rounds", "local_steps"):
        if not (_is_whole(value := getattr(schedule, name)) and value >= 1):
            raise refuse(name, value, "is no count; valid: 1, 2, …")
    if not 0 < schedule.learning_rate < inf:
        raise refuse("learning_rate", schedule.learning_rate, "is no step size; valid: above 0")
    if not 0 <= schedule.proximal < inf:
        raise refuse("proximal", schedule.proximal, "is no weight of a pull; valid: 0 or more")
    for name, known in (("step_size_law", Law), ("center", Center)):
        if (value := getattr(schedule, name)) not in get_args(known):
            raise refuse(name, value, f"is unknown; valid: {', '.join(get_args(known))}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
